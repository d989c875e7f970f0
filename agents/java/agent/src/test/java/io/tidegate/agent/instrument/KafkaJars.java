package io.tidegate.agent.instrument;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.UnaryOperator;

/** Releases of kafka-clients, each in a class loader that gives its classes to the agent. */
final class KafkaJars {
  private static final Path FOLDER = Path.of("target", "kafka-clients");

  private KafkaJars() {}

  /** The jar of a release, which Maven has put there. */
  static URL jar(String version) {
    Path jar = FOLDER.resolve("kafka-clients-" + version + ".jar");
    if (!Files.isRegularFile(jar)) {
      throw new IllegalStateException("there is no " + jar.toAbsolutePath());
    }
    try {
      return jar.toUri().toURL();
    } catch (MalformedURLException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  /** Loads a release's classes as a JVM with the agent does. */
  static final class Woven extends URLClassLoader {
    private final KafkaTransformer transformer = new KafkaTransformer();
    private final Map<String, UnaryOperator<byte[]>> changed;

    /**
     * @param changed by class name what is done to a class first: to try others than there are
     */
    Woven(String version, Map<String, UnaryOperator<byte[]>> changed) {
      super(new URL[] {jar(version)}, KafkaJars.class.getClassLoader());
      this.changed = changed;
    }

    Client client() {
      return transformer.client(this, "");
    }

    /** A class's byte code with its hooks; null: it got none. */
    byte[] woven(String name) {
      return woven(name, bytes(name));
    }

    /** The same of these bytes. */
    byte[] woven(String name, byte[] bytes) {
      return transformer.transform(this, name.replace('.', '/'), null, null, bytes);
    }

    @Override
    public InputStream getResourceAsStream(String resource) {
      String name = resource.replace(".class", "").replace('/', '.');
      return changed.containsKey(name)
          ? new ByteArrayInputStream(bytes(name))
          : super.getResourceAsStream(resource);
    }

    private byte[] bytes(String name) {
      try (InputStream content = super.getResourceAsStream(name.replace('.', '/') + ".class")) {
        byte[] bytes = content.readAllBytes();
        return changed.getOrDefault(name, UnaryOperator.identity()).apply(bytes);
      } catch (IOException unread) {
        throw new UncheckedIOException(unread);
      }
    }

    @Override
    protected Class<?> findClass(String name) throws ClassNotFoundException {
      if (KafkaClass.of(name.replace('.', '/')) == null) {
        return super.findClass(name);
      }
      byte[] woven = woven(name);
      byte[] code = woven == null ? bytes(name) : woven;
      return defineClass(name, code, 0, code.length);
    }
  }
}
