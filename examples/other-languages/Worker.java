import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.UUID;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** Worker PORT: puts three messages with keys, then handles what is in the queue. */
final class Worker {
  private static final String QUEUE = "il:{orders}";
  private static final String LEASE = "30000000"; // µs
  private static final long WAIT = 5_000_000;

  private record Message(String token, String id, String attempt, String payload) {}

  private final RedisClient client;
  private final String me = "java-" + UUID.randomUUID(); // never used before, nor by anybody else
  private final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
  private long number;

  private Worker(int port) {
    // Longer than a call may wait.
    client =
        RedisClient.builder()
            .hostAndPort("127.0.0.1", port)
            .clientConfig(DefaultJedisClientConfig.builder().socketTimeoutMillis(10_000).build())
            .build();
  }

  /** A call that is sent again after a lost connection has the same number, so it is done once. */
  private List<String> call(String function, List<String> words) {
    List<String> arguments = new ArrayList<>(List.of(me, Long.toString(++number)));
    arguments.addAll(words);
    for (int left = 5; ; left--) {
      try {
        return strings(client.fcall(function, List.of(QUEUE), arguments));
      } catch (JedisConnectionException lost) {
        if (left == 0) {
          throw lost;
        }
      }
    }
  }

  private static List<String> strings(Object reply) {
    return ((List<?>) reply).stream().map(String::valueOf).toList();
  }

  private static List<String> message(String payload, String... keys) {
    List<String> words = new ArrayList<>(List.of(payload, Integer.toString(keys.length), "0", "0"));
    Collections.addAll(words, keys);
    return words;
  }

  private static List<Message> messages(List<String> reply) {
    List<Message> found = new ArrayList<>();
    for (int at = 4; at < reply.size(); ) {
      found.add(
          new Message(reply.get(0), reply.get(at), reply.get(at + 2), reply.get(at + 3)));
      at += 6 + Integer.parseInt(reply.get(at + 4)) + Integer.parseInt(reply.get(at + 5));
    }
    return found;
  }

  /** Redis answers at once. Its functions push an element when a message may be ready. */
  private void sleep(String next) {
    long due = next.isEmpty() ? WAIT : Math.min(WAIT, Long.parseLong(next));
    if (due > 0) {
      client.blpop(Math.max(due / 1e6, 0.001), QUEUE + ":wake:any");
    }
  }

  private String settle(String... settlement) {
    String answer = call("il1_settle", List.of(settlement)).get(0);
    if (answer.equals("LEASELOST")) {
      return "lost: somebody else has it now, so nothing was settled";
    }
    return answer;
  }

  /** Stands for the work: takes until the next line. "fail" fails; the end of input ends the worker. */
  private void handle(Message one) throws IOException {
    System.out.printf("handling %s %s attempt %s%n", one.id, one.payload, one.attempt);
    String line = lines.readLine();
    if (line == null) {
      System.exit(0);
    }
    if ("fail".equals(line)) {
      throw new IllegalStateException("told to fail");
    }
  }

  private void run() throws IOException {
    List<String> features = strings(client.fcall("il1_version", List.of(), List.of()));
    boolean parks = features.contains("parks"); // then il1_lease itself waits
    List<String> words = new ArrayList<>(List.of("0"));
    words.addAll(message("open ann", "account:ann"));
    words.addAll(message("ann to bob", "account:ann", "account:bob"));
    words.addAll(message("close bob", "account:bob"));
    List<String> put = call("il1_put", words);
    System.out.printf("put %s %s %s%n", put.get(0), put.get(2), put.get(4));
    while (true) {
      List<String> reply = call("il1_lease", List.of(Long.toString(WAIT), "1", LEASE, "any"));
      List<Message> found = messages(reply);
      String next = reply.get(2);
      if (next.equals("sealed")) {
        return; // by an operator, and all is settled
      }
      if (found.isEmpty() && !parks) {
        sleep(next);
      }
      for (Message one : found) {
        try {
          handle(one);
          System.out.println(settle("ACK", one.token, one.id));
        } catch (IllegalStateException failure) {
          // An empty delay: the backoff of the retry policy.
          System.out.println(settle("NACK", one.token, one.id, "", failure.getMessage()));
        }
      }
    }
  }

  public static void main(String[] arguments) throws IOException {
    new Worker(Integer.parseInt(arguments[0])).run();
  }
}
