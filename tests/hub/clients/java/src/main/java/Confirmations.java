/**
 * Which of the server's confirmations were asked for; the others come after a reconnect, when what
 * was subscribed to before is subscribed to again.
 */
final class Confirmations {
  private static final long LIMIT_MILLISECONDS = 20_000;

  private int asked;
  private int standing;
  private int repeated;

  /** Does what makes the server confirm so many times, and waits until it has. */
  synchronized void await(int count, Runnable request) {
    asked = count;
    request.run();
    long end = System.currentTimeMillis() + LIMIT_MILLISECONDS;
    while (asked > 0) {
      long left = end - System.currentTimeMillis();
      if (left <= 0) {
        throw new IllegalStateException("not confirmed: " + asked);
      }
      try {
        wait(left);
      } catch (InterruptedException interrupted) {
        throw new IllegalStateException(interrupted);
      }
    }
  }

  synchronized void subscribed() {
    if (asked > 0) {
      standing++;
      confirmed();
    } else if (++repeated == standing) {
      repeated = 0;
      Output.say("again");
    }
  }

  synchronized void unsubscribed() {
    standing--;
    confirmed();
  }

  private void confirmed() {
    asked--;
    notifyAll();
  }
}
