package io.tidegate.agent.instrument;

import java.util.ArrayList;
import java.util.List;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.description.type.TypeDescription;
import net.bytebuddy.dynamic.ClassFileLocator;
import net.bytebuddy.dynamic.DynamicType;
import net.bytebuddy.matcher.ElementMatcher;

/** Advice, and the methods of one class that it goes into. */
final class Hook {
  private final Class<?> advice;
  private final String what;
  private final ElementMatcher<? super MethodDescription> methods;
  private final int least;
  private final int most;

  private Hook(
      Class<?> advice,
      String what,
      ElementMatcher<? super MethodDescription> methods,
      int least,
      int most) {
    this.advice = advice;
    this.what = what;
    this.methods = methods;
    this.least = least;
    this.most = most;
  }

  /** There is exactly one such method. */
  static Hook one(Class<?> advice, String what, ElementMatcher<? super MethodDescription> methods) {
    return new Hook(advice, what, methods, 1, 1);
  }

  /** There may be one. */
  static Hook perhaps(
      Class<?> advice, String what, ElementMatcher<? super MethodDescription> methods) {
    return new Hook(advice, what, methods, 0, 1);
  }

  /** There is at least one. */
  static Hook some(
      Class<?> advice, String what, ElementMatcher<? super MethodDescription> methods) {
    return new Hook(advice, what, methods, 1, Integer.MAX_VALUE);
  }

  /** The methods of the class that it goes into. */
  List<MethodDescription> in(TypeDescription type) {
    return new ArrayList<>(type.getDeclaredMethods().filter(methods));
  }

  /** What keeps it from being put into this class; null: nothing. */
  String trouble(TypeDescription type) {
    int found = in(type).size();
    return found >= least && found <= most
        ? null
        : String.format("%s has %d methods like %s", type.getName(), found, what);
  }

  /** The class with this hook. */
  <T> DynamicType.Builder<T> into(DynamicType.Builder<T> builder, ClassFileLocator advices) {
    return builder.visit(Advice.to(advice, advices).on(methods));
  }
}
