/**
 * What instrumented Kafka classes call, and what answers them.
 *
 * <p>This package is on the boot class path, so that it is the same for every copy of
 * kafka-clients, whichever class loader has it. Hence only {@code java.*} types, no state but what
 * {@link io.tidegate.agent.bridge.Runtimes} keeps, and nothing that holds a class loader.
 */
package io.tidegate.agent.bridge;
