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
    return field(of.getClass(), name).get(of);
  }

  /**
   * The field of this name, of this class or the nearest one above that has such a field.
   *
   * @throws NoSuchFieldException where there is none
   */
  static Field field(Class<?> of, String name) throws ReflectiveOperationException {
    for (Class<?> type = of; type != null; type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (field.getName().equals(name)) {
          field.setAccessible(true);
          return field;
        }
      }
    }
    throw new NoSuchFieldException(of.getName() + "." + name);
  }
}
