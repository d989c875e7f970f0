package io.tidegate.agent.instrument;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.jar.JarFile;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import net.bytebuddy.jar.asm.ClassReader;
import net.bytebuddy.jar.asm.ClassWriter;
import net.bytebuddy.jar.asm.commons.ClassRemapper;
import net.bytebuddy.jar.asm.commons.Remapper;
import net.bytebuddy.utility.OpenedClassReader;

/**
 * Has the agent's runtime for one copy of kafka-clients: a child of the class loader that has that,
 * so that it uses the application's own classes, of whatever version. Where the application has
 * moved these to a package of its own, the runtime's references follow them.
 */
final class RuntimeLoader extends ClassLoader {
  /** In the agent's jar: a jar with the runtime, the core, and what they need. */
  static final String RUNTIME = "tidegate-runtime.jar";

  private static final String KAFKA = "org.apache.kafka.";
  private static final String SLF4J = "org.slf4j.";

  private final Map<String, byte[]> classes;
  private final String prefix;
  private final boolean isLogMoved;

  static {
    registerAsParallelCapable();
  }

  RuntimeLoader(ClassLoader parent, String prefix, Map<String, byte[]> classes) {
    super(parent);
    this.prefix = prefix;
    this.classes = classes;
    this.isLogMoved =
        !prefix.isEmpty()
            && parent.getResource(resource(SLF4J + "Logger")) == null
            && parent.getResource(resource(prefix + SLF4J + "Logger")) != null;
  }

  /** By class name the byte code of the runtime in the agent's jar. */
  static Map<String, byte[]> read(File agentJar) throws IOException {
    try (JarFile jar = new JarFile(agentJar)) {
      ZipEntry entry = jar.getEntry(RUNTIME);
      if (entry == null) {
        throw new IOException(agentJar + " has no " + RUNTIME);
      }
      try (InputStream content = jar.getInputStream(entry)) {
        return unpack(content);
      }
    }
  }

  private static Map<String, byte[]> unpack(InputStream jar) throws IOException {
    Map<String, byte[]> found = new HashMap<>();
    try (ZipInputStream entries = new ZipInputStream(jar)) {
      for (ZipEntry each = entries.getNextEntry(); each != null; each = entries.getNextEntry()) {
        String name = each.getName();
        if (name.endsWith(".class") && !name.startsWith("META-INF/")) {
          String className = name.substring(0, name.length() - ".class".length());
          found.put(className.replace('/', '.'), bytes(entries));
        }
      }
    }
    return Collections.unmodifiableMap(found);
  }

  private static byte[] bytes(InputStream content) throws IOException {
    ByteArrayOutputStream read = new ByteArrayOutputStream();
    byte[] buffer = new byte[8192];
    for (int size = content.read(buffer); size >= 0; size = content.read(buffer)) {
      read.write(buffer, 0, size);
    }
    return read.toByteArray();
  }

  @Override
  protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
    byte[] bytes = classes.get(name);
    if (bytes == null) {
      return super.loadClass(name, resolve);
    }
    synchronized (getClassLoadingLock(name)) {
      Class<?> loaded = findLoadedClass(name);
      if (loaded == null) {
        byte[] code = prefix.isEmpty() ? bytes : moved(bytes);
        loaded = defineClass(name, code, 0, code.length, RuntimeLoader.class.getProtectionDomain());
      }
      if (resolve) {
        resolveClass(loaded);
      }
      return loaded;
    }
  }

  private byte[] moved(byte[] bytes) {
    ClassWriter writer = new ClassWriter(0);
    new ClassReader(bytes).accept(new ClassRemapper(writer, new ToPrefix()), 0);
    return writer.toByteArray();
  }

  private boolean moves(String name) {
    return name.startsWith(KAFKA) || (isLogMoved && name.startsWith(SLF4J));
  }

  private static String resource(String className) {
    return className.replace('.', '/') + ".class";
  }

  /** Kafka's names, in code and in strings, as this application has them. */
  private final class ToPrefix extends Remapper {
    private ToPrefix() {
      super(OpenedClassReader.ASM_API);
    }

    @Override
    public String map(String internalName) {
      return moves(internalName.replace('/', '.'))
          ? prefix.replace('.', '/') + internalName
          : internalName;
    }

    @Override
    public Object mapValue(Object value) {
      if (value instanceof String && moves((String) value)) {
        return prefix + value;
      }
      return super.mapValue(value);
    }
  }
}
