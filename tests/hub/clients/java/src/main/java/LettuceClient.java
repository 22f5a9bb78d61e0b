import io.lettuce.core.ClientOptions;
import io.lettuce.core.LettuceFutures;
import io.lettuce.core.LettuceVersion;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.pubsub.api.async.RedisPubSubAsyncCommands;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** lettuce: connects and subscribes again by itself, and keeps commands for the new connection. */
final class LettuceClient implements Client {
  private final Confirmations confirmations = new Confirmations();
  private final RedisClient client;
  private final StatefulRedisConnection<String, String> connection;
  private final RedisCommands<String, String> commands;
  private final RedisPubSubAsyncCommands<String, String> subscriber;

  LettuceClient(int port, String protocol, String name) {
    client =
        RedisClient.create(
            RedisURI.builder().withHost("127.0.0.1").withPort(port).withClientName(name).build());
    if (protocol.equals("2")) {
      client.setOptions(ClientOptions.builder().protocolVersion(ProtocolVersion.RESP2).build());
    }
    connection = client.connect();
    commands = connection.sync();
    StatefulRedisPubSubConnection<String, String> subscribing = client.connectPubSub();
    subscribing.addListener(new Listener());
    subscriber = subscribing.async();
  }

  @Override
  public Object version() {
    return LettuceVersion.getVersion();
  }

  @Override
  public Object ping() {
    return commands.ping();
  }

  @Override
  public Object id() {
    return commands.clientId();
  }

  @Override
  public Object name() {
    return commands.clientGetname();
  }

  @Override
  public Object info() {
    return commands.clientInfo();
  }

  @Override
  public Object unknown() {
    return commands.dispatch(
        new Nonsense(),
        new StatusOutput<>(StringCodec.UTF8),
        new CommandArgs<>(StringCodec.UTF8).add("x"));
  }

  @Override
  public Object publish(String channel, String data) {
    return commands.publish(channel, data);
  }

  @Override
  public Object spublish(String channel, String data) {
    return commands.spublish(channel, data);
  }

  @Override
  public List<Long> pipeline(String channel, int count) {
    List<RedisFuture<Long>> asked = new ArrayList<>();
    connection.setAutoFlushCommands(false);
    for (int number = 0; number < count; number++) {
      asked.add(connection.async().publish(channel, String.valueOf(number)));
    }
    connection.flushCommands();
    connection.setAutoFlushCommands(true);
    LettuceFutures.awaitAll(Duration.ofSeconds(20), asked.toArray(new RedisFuture<?>[0]));
    return asked.stream().map(one -> one.toCompletableFuture().join()).toList();
  }

  @Override
  public void subscribe(String... channels) {
    confirmations.await(channels.length, () -> subscriber.subscribe(channels));
  }

  @Override
  public void psubscribe(String... patterns) {
    confirmations.await(patterns.length, () -> subscriber.psubscribe(patterns));
  }

  @Override
  public void ssubscribe(String... channels) {
    confirmations.await(channels.length, () -> subscriber.ssubscribe(channels));
  }

  @Override
  public void unsubscribe(String... channels) {
    confirmations.await(channels.length, () -> subscriber.unsubscribe(channels));
  }

  @Override
  public void punsubscribe(String... patterns) {
    confirmations.await(patterns.length, () -> subscriber.punsubscribe(patterns));
  }

  @Override
  public void sunsubscribe(String... channels) {
    confirmations.await(channels.length, () -> subscriber.sunsubscribe(channels));
  }

  @Override
  public void close() {
    client.shutdown(Duration.ZERO, Duration.ofSeconds(5));
  }

  private final class Listener extends RedisPubSubAdapter<String, String> {
    @Override
    public void message(String channel, String data) {
      Output.message("", channel, data);
    }

    @Override
    public void message(String pattern, String channel, String data) {
      Output.message(pattern, channel, data);
    }

    @Override
    public void smessage(String channel, String data) {
      Output.message("", channel, data);
    }

    @Override
    public void subscribed(String channel, long count) {
      confirmations.subscribed();
    }

    @Override
    public void psubscribed(String pattern, long count) {
      confirmations.subscribed();
    }

    @Override
    public void ssubscribed(String channel, long count) {
      confirmations.subscribed();
    }

    @Override
    public void unsubscribed(String channel, long count) {
      confirmations.unsubscribed();
    }

    @Override
    public void punsubscribed(String pattern, long count) {
      confirmations.unsubscribed();
    }

    @Override
    public void sunsubscribed(String channel, long count) {
      confirmations.unsubscribed();
    }
  }

  private static final class Nonsense implements ProtocolKeyword {
    @Override
    public byte[] getBytes() {
      return toString().getBytes(StandardCharsets.US_ASCII);
    }

    @Override
    public String toString() {
      return "NONSENSE";
    }
  }
}
