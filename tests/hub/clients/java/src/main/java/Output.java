/** Lines for the test; a line is never mixed with that of another thread. */
final class Output {
  static synchronized void say(String... words) {
    System.out.println(String.join("\t", words));
    System.out.flush();
  }

  static void message(String pattern, String channel, String data) {
    say("message", pattern, channel, data);
  }

  private Output() {}
}
