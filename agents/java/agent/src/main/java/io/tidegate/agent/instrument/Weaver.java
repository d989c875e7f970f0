package io.tidegate.agent.instrument;

import io.tidegate.agent.bridge.Governed;
import io.tidegate.agent.bridge.Member;
import io.tidegate.agent.bridge.Subscribed;
import io.tidegate.agent.instrument.advice.Names;
import java.lang.reflect.Modifier;
import java.util.EnumSet;
import java.util.Set;
import net.bytebuddy.ByteBuddy;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.dynamic.scaffold.MethodGraph;
import net.bytebuddy.dynamic.scaffold.TypeValidation;
import net.bytebuddy.implementation.FieldAccessor;
import net.bytebuddy.pool.TypePool;

/** Puts the hooks into the byte code of Kafka's classes. Made when the first of them is loaded. */
final class Weaver {
  private final ByteBuddy byteBuddy =
      new ByteBuddy()
          .with(TypeValidation.DISABLED)
          .with(MethodGraph.Compiler.ForDeclaredMethods.INSTANCE);

  /** The agent's own jar, which is on the class path too; the boot class path shows no files. */
  private final ClassFileLocator advices =
      ClassFileLocator.ForClassLoader.of(ClassLoader.getSystemClassLoader());

  /**
   * What keeps the agent from governing consumers by these classes; null: nothing. None of them is
   * loaded for that.
   */
  String trouble(ClassFileLocator classes, String prefix, Set<KafkaClass> needed) {
    TypePool pool = TypePool.Default.of(classes);
    for (KafkaClass each : EnumSet.copyOf(needed)) {
      TypePool.Resolution found = pool.describe(each.name(prefix));
      if (!found.isResolved()) {
        return "there is no " + each.name(prefix);
      }
      String trouble = Plan.trouble(each, found.resolve());
      if (trouble != null) {
        return trouble;
      }
    }
    return null;
  }

  /** The class with its hooks. */
  byte[] weave(KafkaClass kafkaClass, String name, byte[] bytes, ClassFileLocator others) {
    ClassFileLocator classes =
        new ClassFileLocator.Compound(ClassFileLocator.Simple.of(name, bytes), others);
    TypeDescription type = TypePool.Default.of(classes).describe(name).resolve();
    DynamicType.Builder<?> builder = byteBuddy.redefine(type, classes);
    for (Hook hook : Plan.hooks(kafkaClass, type)) {
      builder = hook.into(builder, advices);
    }
    return members(kafkaClass, builder).make().getBytes();
  }

  /** KafkaConsumer with nothing but the hook that tells why its consumers are not governed. */
  byte[] weaveConstructorOnly(String name, byte[] bytes, ClassFileLocator others) {
    ClassFileLocator classes =
        new ClassFileLocator.Compound(ClassFileLocator.Simple.of(name, bytes), others);
    TypeDescription type = TypePool.Default.of(classes).describe(name).resolve();
    Hook hook = Plan.hooks(KafkaClass.CONSUMER, type).get(0);
    return hook.into(byteBuddy.redefine(type, classes), advices).make().getBytes();
  }

  private static DynamicType.Builder<?> members(
      KafkaClass kafkaClass, DynamicType.Builder<?> builder) {
    switch (kafkaClass) {
      case CONSUMER:
      case SUBSCRIPTIONS:
        return builder
            .defineField(
                Names.MEMBER,
                Member.class,
                Modifier.PRIVATE | Modifier.VOLATILE | Modifier.TRANSIENT)
            .implement(Governed.class)
            .defineMethod(Names.MEMBER, Member.class, Modifier.PUBLIC)
            .intercept(FieldAccessor.ofField(Names.MEMBER))
            .defineMethod(Names.MEMBER, void.class, Modifier.PUBLIC)
            .withParameters(Member.class)
            .intercept(FieldAccessor.ofField(Names.MEMBER));
      case COMMIT_MANAGER:
        return builder
            .implement(Subscribed.class)
            .defineMethod(Names.SUBSCRIPTIONS, Object.class, Modifier.PUBLIC)
            .intercept(FieldAccessor.ofField("subscriptions"));
      default:
        return builder;
    }
  }
}
