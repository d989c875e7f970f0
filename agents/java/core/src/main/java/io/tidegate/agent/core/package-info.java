/**
 * What the agent decides, as values: which records of the control topic say what, which gates are
 * closed, and what becomes of each partition of a consumer.
 *
 * <p>Nothing here knows Kafka's types, starts a thread, logs or reads a clock. Times are {@code
 * long} nanoseconds of any clock that only goes forward, as {@link System#nanoTime()}, and are
 * passed in. The protocol is in {@code agents/contract}; the Python agent's core is the other
 * implementation of it.
 */
package io.tidegate.agent.core;
