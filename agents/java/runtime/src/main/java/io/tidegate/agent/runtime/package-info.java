/**
 * What the agent does with Kafka's classes: its settings, its way to the control topic and the ack
 * topic, and the application's consumers.
 *
 * <p>Compiled against the oldest kafka-clients that the agent supports, and loaded below the class
 * loader that has the application's, so that each copy of these has agents' classes of its own.
 */
package io.tidegate.agent.runtime;
