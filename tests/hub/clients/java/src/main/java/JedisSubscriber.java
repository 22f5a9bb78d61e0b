import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.locks.LockSupport;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.exceptions.JedisConnectionException;

/**
 * Subscriptions by jedis. Its call to subscribe blocks until all of them are ended, and throws when
 * the connection is lost: a program that wants them back asks for them anew, as this one does.
 */
final class JedisSubscriber {
  private static final long PAUSE_NANOSECONDS = 20_000_000;

  private final RedisClient client;
  private final Confirmations confirmations = new Confirmations();
  private final Set<String> channels = new ConcurrentSkipListSet<>();
  private final Set<String> patterns = new ConcurrentSkipListSet<>();
  private Listener listener = new Listener();
  private Thread thread;

  JedisSubscriber(RedisClient client) {
    this.client = client;
  }

  void subscribe(String... names) {
    join(names, channels, () -> listener.subscribe(names));
  }

  void psubscribe(String... names) {
    join(names, patterns, () -> listener.psubscribe(names));
  }

  void unsubscribe(String... names) {
    leave(names, channels, () -> listener.unsubscribe(names));
  }

  void punsubscribe(String... names) {
    leave(names, patterns, () -> listener.punsubscribe(names));
  }

  void close() {
    if (thread != null) {
      thread.interrupt();
    }
  }

  private void join(String[] names, Set<String> to, Runnable request) {
    to.addAll(Set.of(names));
    if (thread == null) {
      listener = new Listener();
      thread = new Thread(this::listen);
      // Its read of the socket cannot be interrupted.
      thread.setDaemon(true);
      confirmations.await(names.length, thread::start);
    } else {
      confirmations.await(names.length, request);
    }
  }

  private void leave(String[] names, Set<String> from, Runnable request) {
    from.removeAll(Set.of(names));
    confirmations.await(names.length, request);
    if (channels.isEmpty() && patterns.isEmpty()) {
      try {
        thread.join();
      } catch (InterruptedException interrupted) {
        throw new IllegalStateException(interrupted);
      }
      thread = null;
    }
  }

  private void listen() {
    while (!(channels.isEmpty() && patterns.isEmpty())) {
      try {
        listener = new Listener();
        if (channels.isEmpty()) {
          client.psubscribe(listener, patterns.toArray(new String[0]));
        } else {
          client.subscribe(listener, channels.toArray(new String[0]));
        }
      } catch (JedisConnectionException lost) {
        if (Thread.currentThread().isInterrupted()) {
          return;
        }
        LockSupport.parkNanos(PAUSE_NANOSECONDS);
      }
    }
  }

  private final class Listener extends JedisPubSub {
    private boolean complete = channels.isEmpty() || patterns.isEmpty();

    @Override
    public void onMessage(String channel, String data) {
      Output.message("", channel, data);
    }

    @Override
    public void onPMessage(String pattern, String channel, String data) {
      Output.message(pattern, channel, data);
    }

    @Override
    public void onSubscribe(String channel, int count) {
      // The call could name channels only; now there is a connection to ask for the patterns on.
      if (!complete) {
        complete = true;
        psubscribe(patterns.toArray(new String[0]));
      }
      confirmations.subscribed();
    }

    @Override
    public void onPSubscribe(String pattern, int count) {
      confirmations.subscribed();
    }

    @Override
    public void onUnsubscribe(String channel, int count) {
      confirmations.unsubscribed();
    }

    @Override
    public void onPUnsubscribe(String pattern, int count) {
      confirmations.unsubscribed();
    }
  }
}
