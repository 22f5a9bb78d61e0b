import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;

/**
 * {@code Main jedis|lettuce PORT PROTOCOL NAME}: commands come in by lines, replies and events go out
 * by lines. tests/hub/protocol/foreign.py says which.
 */
public final class Main {
  public static void main(String[] arguments) throws IOException {
    int port = Integer.parseInt(arguments[1]);
    try (Client client =
        arguments[0].equals("jedis")
            ? new JedisClient(port, arguments[2], arguments[3])
            : new LettuceClient(port, arguments[2], arguments[3])) {
      Output.say("connected");
      serve(client);
    }
  }

  private static void serve(Client client) throws IOException {
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      try {
        Object reply = answer(client, words[0], Arrays.copyOfRange(words, 1, words.length));
        Output.say("=", String.valueOf(reply).strip());
      } catch (RuntimeException error) {
        Output.say("!", error.getClass().getSimpleName(), String.valueOf(error.getMessage()));
      }
    }
  }

  private static Object answer(Client client, String verb, String[] words) {
    switch (verb) {
      case "version":
        return client.version();
      case "ping":
        return client.ping();
      case "id":
        return client.id();
      case "name":
        return client.name();
      case "info":
        return client.info();
      case "unknown":
        return client.unknown();
      case "publish":
        return client.publish(words[0], words[1]);
      case "spublish":
        return client.spublish(words[0], words[1]);
      case "pipeline":
        return summary(client.pipeline(words[0], Integer.parseInt(words[1])));
      case "subscribe":
        client.subscribe(words);
        break;
      case "psubscribe":
        client.psubscribe(words);
        break;
      case "ssubscribe":
        client.ssubscribe(words);
        break;
      case "unsubscribe":
        client.unsubscribe(words);
        break;
      case "punsubscribe":
        client.punsubscribe(words);
        break;
      case "sunsubscribe":
        client.sunsubscribe(words);
        break;
      default:
        throw new IllegalArgumentException("no verb " + verb);
    }
    return words.length;
  }

  /** How many were answered, and how many receivers they had in all. */
  private static String summary(List<Long> receivers) {
    return receivers.size() + " " + receivers.stream().mapToLong(Long::longValue).sum();
  }
}
