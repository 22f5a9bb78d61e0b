import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.Protocol.Command;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;

/** jedis: a pool of blocking connections. It leaves it to the program to try again after a loss. */
final class JedisClient implements Client {
  private final RedisClient client;
  private final JedisSubscriber subscriber;

  JedisClient(int port, String protocol, String name) {
    DefaultJedisClientConfig.Builder config = DefaultJedisClientConfig.builder().clientName(name);
    if (protocol.equals("2")) {
      config.resp2();
    }
    client =
        RedisClient.builder().hostAndPort("127.0.0.1", port).clientConfig(config.build()).build();
    subscriber = new JedisSubscriber(client);
    client.ping();
  }

  @Override
  public Object version() {
    Properties properties = new Properties();
    try (InputStream file =
        RedisClient.class.getResourceAsStream("/META-INF/maven/redis.clients/jedis/pom.properties")) {
      properties.load(file);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return properties.getProperty("version");
  }

  @Override
  public Object ping() {
    return client.ping();
  }

  @Override
  public Object id() {
    return ask(Command.CLIENT, "ID");
  }

  @Override
  public Object name() {
    return text(ask(Command.CLIENT, "GETNAME"));
  }

  @Override
  public Object info() {
    return text(ask(Command.CLIENT, "INFO"));
  }

  @Override
  public Object unknown() {
    return ask(() -> "NONSENSE".getBytes(StandardCharsets.US_ASCII), "x");
  }

  @Override
  public Object publish(String channel, String data) {
    try {
      return client.publish(channel, data);
    } catch (JedisConnectionException lost) {
      // The pool learns only now that this connection is gone; the next one is new.
      Output.say("trouble", String.valueOf(lost.getMessage()));
      return client.publish(channel, data);
    }
  }

  @Override
  public Object spublish(String channel, String data) {
    // Only the client for clusters has a method for it.
    return ask(Command.SPUBLISH, channel, data);
  }

  @Override
  public List<Long> pipeline(String channel, int count) {
    List<Response<Long>> asked = new ArrayList<>();
    try (Pipeline pipeline = client.pipelined()) {
      for (int number = 0; number < count; number++) {
        asked.add(pipeline.publish(channel, String.valueOf(number)));
      }
      pipeline.sync();
    }
    return asked.stream().map(Response::get).toList();
  }

  @Override
  public void subscribe(String... channels) {
    subscriber.subscribe(channels);
  }

  @Override
  public void psubscribe(String... patterns) {
    subscriber.psubscribe(patterns);
  }

  @Override
  public void ssubscribe(String... channels) {
    throw new UnsupportedOperationException("only the client for clusters subscribes to shards");
  }

  @Override
  public void unsubscribe(String... channels) {
    subscriber.unsubscribe(channels);
  }

  @Override
  public void punsubscribe(String... patterns) {
    subscriber.punsubscribe(patterns);
  }

  @Override
  public void sunsubscribe(String... channels) {
    throw new UnsupportedOperationException("only the client for clusters subscribes to shards");
  }

  @Override
  public void close() {
    subscriber.close();
    client.close();
  }

  private Object ask(ProtocolCommand command, String... words) {
    CommandArguments arguments = new CommandArguments(command);
    for (String word : words) {
      arguments.add(word);
    }
    return client.executeCommand(arguments);
  }

  private static String text(Object reply) {
    return new String((byte[]) reply, StandardCharsets.UTF_8);
  }
}
