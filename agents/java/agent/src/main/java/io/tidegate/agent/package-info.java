/** Where the JVM enters the agent. */
package io.tidegate.agent;
