import java.util.List;

/** What a line that comes in may ask of a client: one method a verb, which answers what to print. */
interface Client extends AutoCloseable {
  Object version();

  Object ping();

  Object id();

  Object name();

  Object info();

  Object unknown();

  Object publish(String channel, String data);

  Object spublish(String channel, String data);

  /** Publishes the numbers below a count; answers how many receivers each had. */
  List<Long> pipeline(String channel, int count);

  void subscribe(String... channels);

  void psubscribe(String... patterns);

  void ssubscribe(String... channels);

  void unsubscribe(String... channels);

  void punsubscribe(String... patterns);

  void sunsubscribe(String... channels);

  @Override
  void close();
}
