/**
 * Puts hooks into Kafka's classes as they are loaded, and loads the runtime that answers these
 * beside each copy of kafka-clients.
 */
package io.tidegate.agent.instrument;
