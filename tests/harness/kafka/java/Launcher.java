import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.util.Arrays;

/**
 * Starts another main class in a JVM that cannot outlive the test that started it.
 *
 * <p>Standard input is a pipe held by the harness. When it closes, for whatever reason, the JVM
 * halts at once: a test that panics, is killed or times out leaves no broker behind.
 *
 * <p>Usage: {@code Launcher [--buffered] [--format CLUSTER_ID PROPERTIES] CLASS ARGUMENTS...}.
 *
 * <p>With {@code --buffered} standard output is written in large pieces: Java writes each argument
 * of each print by itself, which takes a tool that prints a line a record minutes instead of
 * seconds. What is buffered is written at the end, however it comes but by halting.
 *
 * <p>With {@code --format} Kafka's own StorageTool runs first, in this JVM, because a JVM of its own would
 * cost another second; directories that are formatted already stay as they are.
 */
public final class Launcher {
    private Launcher() {}

    public static void main(String[] args) throws Exception {
        Thread guard = new Thread(Launcher::haltAtEndOfInput, "harness-guard");
        guard.setDaemon(true);
        guard.start();

        int next = 0;
        if (args.length > next && args[next].equals("--buffered")) {
            buffer();
            next += 1;
        }
        if (args.length > next && args[next].equals("--format")) {
            format(args[next + 1], args[next + 2]);
            next += 3;
        }
        Class<?> main = Class.forName(args[next]);
        String[] rest = Arrays.copyOfRange(args, next + 1, args.length);
        main.getMethod("main", String[].class).invoke(null, (Object) rest);
    }

    private static void haltAtEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                // Nothing is ever sent: only the end counts.
            }
        } catch (IOException closed) {
            // The same as the end.
        }
        Runtime.getRuntime().halt(137);
    }

    private static void buffer() {
        PrintStream out = new PrintStream(
                new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), 1 << 16), false);
        System.setOut(out);
        Runtime.getRuntime().addShutdownHook(new Thread(out::flush, "harness-flush"));
    }

    private static void format(String clusterId, String properties) throws Exception {
        String[] args = {"format", "-g", "-t", clusterId, "-c", properties};
        Object code = Class.forName("kafka.tools.StorageTool")
                .getMethod("execute", String[].class, PrintStream.class)
                .invoke(null, args, System.out);
        if (!Integer.valueOf(0).equals(code)) {
            System.err.println("StorageTool format answered " + code);
            System.exit(1);
        }
    }
}
