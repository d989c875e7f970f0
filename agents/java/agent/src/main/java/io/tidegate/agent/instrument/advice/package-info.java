/**
 * What is put into Kafka's methods, as byte code: nothing here is called. It sees nothing but the
 * bridge and {@code java.*}, and leaves the rest to the bridge's hooks, which never throw.
 */
package io.tidegate.agent.instrument.advice;
