package boot;

import driven.DrivenApplication;
import driven.DrivenApplication.Kind;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/**
 * The driven application under Spring Boot: its members may also be Spring Kafka's listener containers. With a {@code
 * LEDGER} it is the {@link Bookkeeper} instead.
 */
@SpringBootApplication
public class BootApplication {
  /** Ends with standard input, as a bookkeeper with its process. */
  public static void main(String[] arguments) throws IOException {
    SpringApplication application = new SpringApplication(BootApplication.class);
    application.setBannerMode(Banner.Mode.OFF); // standard output is for what is told
    application.run(arguments);
    if (System.getenv("LEDGER") != null) {
      return;
    }
    Map<String, Kind> kinds = new LinkedHashMap<>();
    kinds.put("consumer", driven.DrivenConsumer::start);
    kinds.put("record-listener", (job, out) -> ListenerContainer.start(job, out, false));
    kinds.put("batch-listener", (job, out) -> ListenerContainer.start(job, out, true));
    DrivenApplication.run(kinds);
  }
}
