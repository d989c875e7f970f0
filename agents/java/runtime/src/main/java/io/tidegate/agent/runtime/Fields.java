package io.tidegate.agent.runtime;

import java.lang.reflect.Field;

/** Fields of other people's objects, private ones included. */
final class Fields {
  private Fields() {}

  /**
   * What the object has in the field of this name, of its own class or the nearest one above that
   * has such a field.
   *
   * @throws NoSuchFieldException where it has none
   */
  static Object value(Object of, String name) throws ReflectiveOperationException {
    for (Class<?> type = of.getClass(); type != null; type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (field.getName().equals(name)) {
          field.setAccessible(true);
          return field.get(of);
        }
      }
    }
    throw new NoSuchFieldException(of.getClass().getName() + "." + name);
  }
}
