import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients behind a line protocol, so that a test pays for one JVM instead of one a
 * command.
 *
 * <p>One JSON object a line on standard input: {@code {"id":7,"op":"create_topic","bootstrap":…}}.
 * One a line on standard output: {@code {"id":7,"ok":{…}}} or
 * {@code {"id":7,"error":{"class":"TopicExistsException","message":"…"}}}. Requests run side by
 * side, so replies come in any order. The end of the input ends the JVM, background producers and
 * open transactions included.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Admin> ADMINS = new ConcurrentHashMap<>();
    private static final Map<String, Background> BACKGROUND = new ConcurrentHashMap<>();
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN_TRANSACTIONS =
            new ConcurrentHashMap<>();

    private Driver() {}

    public static void main(String[] args) throws Exception {
        PrintStream replies = System.out;
        System.setOut(System.err); // Nothing but replies may reach the harness.
        ExecutorService workers = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task, "request");
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            workers.execute(() -> answer(request, replies));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(JsonNode request, PrintStream replies) {
        ObjectNode reply = JSON.createObjectNode();
        reply.set("id", request.path("id"));
        try {
            reply.set("ok", run(request));
        } catch (Throwable thrown) {
            Throwable cause = thrown instanceof ExecutionException && thrown.getCause() != null
                    ? thrown.getCause() : thrown;
            ObjectNode error = reply.putObject("error");
            error.put("class", cause.getClass().getSimpleName());
            error.put("message", String.valueOf(cause.getMessage()));
        }
        synchronized (replies) {
            replies.println(reply);
            replies.flush();
        }
    }

    private static ObjectNode run(JsonNode r) throws Exception {
        switch (r.path("op").asText()) {
            case "ping": return JSON.createObjectNode();
            case "exit": return exit();
            case "create_topic": return createTopic(r);
            case "delete_topic": return deleteTopic(r);
            case "create_partitions": return createPartitions(r);
            case "alter_configs": return alterConfigs(r);
            case "delete_records": return deleteRecords(r);
            case "elect_leader": return electLeader(r);
            case "reassign": return reassign(r);
            case "list_offset": return listOffset(r);
            case "produce": return produce(r);
            case "end_transaction": return endTransaction(r);
            case "start_producer": return startProducer(r);
            case "stop_producer": return stopProducer(r);
            case "consume": return consume(r);
            default: throw new IllegalArgumentException("no such op: " + r.path("op").asText());
        }
    }

    /** Answers first: the JVM then ends with its shutdown hooks, unlike at the end of input. */
    private static ObjectNode exit() {
        new Thread(() -> {
            pause(100_000_000);
            System.exit(0);
        }).start();
        return JSON.createObjectNode();
    }

    private static void pause(long nanos) {
        try {
            TimeUnit.NANOSECONDS.sleep(nanos);
        } catch (InterruptedException ignored) {
            Thread.currentThread().interrupt();
        }
    }

    // --- admin

    private static Admin admin(JsonNode r) {
        return ADMINS.computeIfAbsent(bootstrap(r), servers -> {
            Properties p = new Properties();
            p.put("bootstrap.servers", servers);
            // Brokers are killed and come back within a test: be quick to look again.
            p.put("reconnect.backoff.max.ms", "200");
            p.put("default.api.timeout.ms", "60000");
            return Admin.create(p);
        });
    }

    private static ObjectNode createTopic(JsonNode r) throws Exception {
        String name = r.path("topic").asText();
        NewTopic topic;
        if (r.path("assignment").isEmpty()) {
            topic = new NewTopic(name, Optional.of(r.path("partitions").asInt(1)),
                    Optional.of((short) r.path("replication_factor").asInt(1)));
        } else {
            topic = new NewTopic(name, assignment(r.path("assignment")));
        }
        topic.configs(strings(r.path("configs")));
        var result = admin(r).createTopics(List.of(topic));
        result.all().get();
        return JSON.createObjectNode();
    }

    private static ObjectNode deleteTopic(JsonNode r) throws Exception {
        admin(r).deleteTopics(List.of(r.path("topic").asText())).all().get();
        return JSON.createObjectNode();
    }

    private static ObjectNode createPartitions(JsonNode r) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(r.path("total").asInt());
        admin(r).createPartitions(Map.of(r.path("topic").asText(), total)).all().get();
        return JSON.createObjectNode();
    }

    /** Topics by name, brokers by node id; an empty broker name is the cluster-wide default. */
    private static ObjectNode alterConfigs(JsonNode r) throws Exception {
        ConfigResource.Type type = r.path("resource").asText().equals("broker")
                ? ConfigResource.Type.BROKER : ConfigResource.Type.TOPIC;
        List<AlterConfigOp> ops = new ArrayList<>();
        strings(r.path("set")).forEach((key, value) ->
                ops.add(new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        for (JsonNode key : r.path("delete")) {
            ops.add(new AlterConfigOp(
                    new ConfigEntry(key.asText(), null), AlterConfigOp.OpType.DELETE));
        }
        Map<ConfigResource, Collection<AlterConfigOp>> all =
                Map.of(new ConfigResource(type, r.path("name").asText()), ops);
        admin(r).incrementalAlterConfigs(all).all().get();
        return JSON.createObjectNode();
    }

    private static ObjectNode deleteRecords(JsonNode r) throws Exception {
        TopicPartition tp = partition(r);
        var deleted = admin(r).deleteRecords(
                Map.of(tp, RecordsToDelete.beforeOffset(r.path("before").asLong())));
        long start = deleted.lowWatermarks().get(tp).get().lowWatermark();
        return JSON.createObjectNode().put("log_start_offset", start);
    }

    private static ObjectNode electLeader(JsonNode r) throws Exception {
        ElectionType type = r.path("kind").asText().equals("unclean")
                ? ElectionType.UNCLEAN : ElectionType.PREFERRED;
        TopicPartition tp = partition(r);
        Optional<Throwable> failed =
                admin(r).electLeaders(type, Set.of(tp)).partitions().get().get(tp);
        if (failed != null && failed.isPresent()
                && !(failed.get() instanceof ElectionNotNeededException)) {
            throw new ExecutionException(failed.get());
        }
        return JSON.createObjectNode();
    }

    /** Returns when the reassignment is over, or fails at the deadline. */
    private static ObjectNode reassign(JsonNode r) throws Exception {
        TopicPartition tp = partition(r);
        List<Integer> replicas = ints(r.path("replicas"));
        admin(r).alterPartitionReassignments(
                Map.of(tp, Optional.of(new NewPartitionReassignment(replicas)))).all().get();
        long deadline = deadline(r);
        while (admin(r).listPartitionReassignments(Set.of(tp)).reassignments().get()
                .containsKey(tp)) {
            if (System.nanoTime() > deadline) {
                throw new TimeoutException(tp + " is still being reassigned to " + replicas);
            }
            Thread.sleep(50);
        }
        return JSON.createObjectNode();
    }

    private static ObjectNode listOffset(JsonNode r) throws Exception {
        TopicPartition tp = partition(r);
        OffsetSpec spec;
        switch (r.path("at").asText()) {
            case "earliest": spec = OffsetSpec.earliest(); break;
            case "latest": spec = OffsetSpec.latest(); break;
            case "max_timestamp": spec = OffsetSpec.maxTimestamp(); break;
            default: spec = OffsetSpec.forTimestamp(r.path("timestamp_ms").asLong());
        }
        ListOffsetsResultInfo found = admin(r).listOffsets(
                Map.of(tp, spec), new ListOffsetsOptions(isolation(r))).partitionResult(tp).get();
        return JSON.createObjectNode()
                .put("offset", found.offset())
                .put("timestamp_ms", found.timestamp())
                .put("leader_epoch", found.leaderEpoch().orElse(-1));
    }

    // --- producing

    private static KafkaProducer<byte[], byte[]> producer(JsonNode r) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap(r));
        p.put("reconnect.backoff.max.ms", "200");
        p.put("max.block.ms", "30000");
        p.putAll(strings(r.path("properties")));
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer());
        if (p.containsKey("transactional.id")) {
            producer.initTransactions();
        }
        return producer;
    }

    /** The record of index {@code i}: the same for the same request, whoever asks. */
    private static ProducerRecord<byte[], byte[]> record(JsonNode r, long i) {
        long keys = r.path("keys").asLong(0);
        byte[] key = keys == 0 ? null : ("k" + i % keys).getBytes(StandardCharsets.UTF_8);
        byte[] value = null;
        if (!r.path("tombstones").asBoolean(false)) {
            value = new byte[r.path("value_bytes").asInt(100)];
            int noise = (int) (value.length * (1.0 - r.path("compressible").asDouble(0.0)));
            byte[] random = new byte[noise];
            new SplittableRandom(r.path("seed").asLong(0) * 1_000_003L + i).nextBytes(random);
            System.arraycopy(random, 0, value, 0, noise);
        }
        Integer partition = r.path("partition").asInt(-1) < 0 ? null : r.path("partition").asInt();
        Long timestamp = r.path("timestamp_ms").isNumber()
                ? r.path("timestamp_ms").asLong() + i * r.path("timestamp_step_ms").asLong(0)
                : null;
        ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(r.path("topic").asText(), partition, timestamp, key, value);
        for (int h = 0; h < r.path("headers").asInt(0); h++) {
            record.headers().add("h" + h, ("v" + i).getBytes(StandardCharsets.UTF_8));
        }
        return record;
    }

    /** What became of the records of one request. Callbacks come from the client's thread. */
    private static final class Tally {
        private long acked;
        private long failed;
        private String firstError;
        private final Map<Integer, long[]> offsets = new TreeMap<>();

        synchronized void done(RecordMetadata metadata, Exception error) {
            if (error != null) {
                failed++;
                if (firstError == null) {
                    firstError = error.toString();
                }
                return;
            }
            acked++;
            if (!metadata.hasOffset()) { // acks=0
                return;
            }
            long offset = metadata.offset();
            long[] range = offsets.computeIfAbsent(
                    metadata.partition(), ignored -> new long[] {offset, offset});
            range[0] = Math.min(range[0], offset);
            range[1] = Math.max(range[1], offset);
        }

        synchronized boolean hasFailed() {
            return failed > 0;
        }

        synchronized ObjectNode report() {
            ObjectNode report = JSON.createObjectNode();
            report.put("acked", acked).put("failed", failed).put("first_error", firstError);
            ArrayNode partitions = report.putArray("partitions");
            offsets.forEach((partition, range) -> partitions.addObject()
                    .put("partition", partition)
                    .put("first_offset", range[0])
                    .put("last_offset", range[1]));
            return report;
        }
    }

    private static ObjectNode produce(JsonNode r) throws Exception {
        long count = r.path("count").asLong();
        long first = r.path("first_index").asLong(0);
        long perTransaction = r.path("records_per_transaction").asLong(0);
        long abortEvery = r.path("abort_every").asLong(0);
        boolean leaveOpen = r.path("leave_open").asBoolean(false);
        Tally tally = new Tally();
        KafkaProducer<byte[], byte[]> producer = producer(r);
        boolean transactional = r.path("properties").has("transactional.id");
        try {
            boolean open = false;
            long transactions = 0;
            for (long i = 0; i < count; i++) {
                if (transactional && !open) {
                    producer.beginTransaction();
                    open = true;
                }
                if (tally.hasFailed()) {
                    break; // Each further record might wait as long as the first did.
                }
                producer.send(record(r, first + i), tally::done);
                boolean full = perTransaction > 0 && (i + 1) % perTransaction == 0;
                if (open && full && !(leaveOpen && i + 1 == count)) {
                    transactions++;
                    end(producer, abortEvery > 0 && transactions % abortEvery == 0);
                    open = false;
                }
            }
            producer.flush();
            if (open && leaveOpen) {
                OPEN_TRANSACTIONS.put(
                        r.path("properties").path("transactional.id").asText(), producer);
                producer = null;
            } else if (open) {
                transactions++;
                end(producer, abortEvery > 0 && transactions % abortEvery == 0);
            }
        } finally {
            if (producer != null) {
                producer.close(Duration.ofSeconds(10));
            }
        }
        return tally.report();
    }

    private static void end(KafkaProducer<byte[], byte[]> producer, boolean abort) {
        if (abort) {
            producer.flush(); // Otherwise records still in the client would never be written.
            producer.abortTransaction();
        } else {
            producer.commitTransaction();
        }
    }

    private static ObjectNode endTransaction(JsonNode r) {
        String id = r.path("transactional_id").asText();
        KafkaProducer<byte[], byte[]> producer = OPEN_TRANSACTIONS.remove(id);
        if (producer == null) {
            throw new IllegalArgumentException("no open transaction of " + id);
        }
        try {
            end(producer, !r.path("commit").asBoolean());
        } finally {
            producer.close(Duration.ofSeconds(10));
        }
        return JSON.createObjectNode();
    }

    /** A producer that runs at a fixed rate until it is told to stop, whatever happens. */
    private static final class Background implements Runnable {
        private final JsonNode request;
        private final Tally tally = new Tally();
        private final Thread thread = new Thread(this, "background-producer");
        private volatile boolean stop;

        Background(JsonNode request) {
            this.request = request;
            thread.setDaemon(true);
        }

        @Override
        public void run() {
            double perSecond = Math.max(0.001, request.path("records_per_s").asDouble(100));
            long begun = System.nanoTime();
            KafkaProducer<byte[], byte[]> producer = null;
            for (long i = 0; !stop; i++) {
                long due = begun + (long) (i / perSecond * 1e9);
                while (!stop && System.nanoTime() < due) {
                    pause(Math.max(0, Math.min(due - System.nanoTime(), 50_000_000)));
                }
                if (stop) {
                    break;
                }
                try {
                    if (producer == null) {
                        producer = producer(request);
                    }
                    producer.send(record(request, i), tally::done);
                } catch (RuntimeException error) {
                    tally.done(null, error); // Fenced or closed: start over with a new producer.
                    if (producer != null) {
                        producer.close(Duration.ofSeconds(1));
                        producer = null;
                    }
                }
            }
            if (producer != null) {
                producer.close(Duration.ofSeconds(30));
            }
        }
    }

    private static ObjectNode startProducer(JsonNode r) {
        Background background = new Background(r);
        if (BACKGROUND.putIfAbsent(r.path("handle").asText(), background) != null) {
            throw new IllegalArgumentException("handle in use: " + r.path("handle").asText());
        }
        background.thread.start();
        return JSON.createObjectNode();
    }

    private static ObjectNode stopProducer(JsonNode r) throws Exception {
        Background background = BACKGROUND.remove(r.path("handle").asText());
        if (background == null) {
            throw new IllegalArgumentException("no producer " + r.path("handle").asText());
        }
        background.stop = true;
        background.thread.join(60_000);
        return background.tally.report();
    }

    // --- consuming

    /**
     * Reads one partition up to an offset and digests what it saw. Two servers that give the same
     * answer have the same records at the same offsets. Lengths are digested too, so that bytes
     * cannot move from key to value unseen.
     */
    private static ObjectNode consume(JsonNode r) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap(r));
        p.put("reconnect.backoff.max.ms", "200");
        p.put("isolation.level",
                isolation(r) == IsolationLevel.READ_COMMITTED ? "read_committed" : "read_uncommitted");
        p.put("auto.offset.reset", "none");
        p.put("enable.auto.commit", "false");
        p.put("max.poll.records", "10000");
        p.putAll(strings(r.path("properties")));
        TopicPartition tp = partition(r);
        long deadline = deadline(r);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(p, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(tp));
            if (r.path("from").isNumber()) {
                consumer.seek(tp, r.path("from").asLong());
            } else {
                consumer.seekToBeginning(List.of(tp));
            }
            long end = r.path("to").isNumber()
                    ? r.path("to").asLong() : consumer.endOffsets(List.of(tp)).get(tp);
            Digest digest = new Digest();
            while (consumer.position(tp) < end) {
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException(
                            tp + ": at " + consumer.position(tp) + " of " + end);
                }
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    if (record.offset() < end) {
                        digest.add(record);
                    }
                }
            }
            return digest.report().put("end_offset", end);
        }
    }

    private static final class Digest {
        private final MessageDigest records;
        private final MessageDigest epochs;
        private long count;
        private long bytes;
        private long first = -1;
        private long last = -1;

        Digest() throws Exception {
            records = MessageDigest.getInstance("SHA-256");
            epochs = MessageDigest.getInstance("SHA-256");
        }

        void add(ConsumerRecord<byte[], byte[]> record) {
            count++;
            first = first < 0 ? record.offset() : first;
            last = record.offset();
            number(records, record.offset());
            number(records, record.timestamp());
            bytes(record.key());
            bytes(record.value());
            for (Header header : record.headers()) {
                bytes(header.key().getBytes(StandardCharsets.UTF_8));
                bytes(header.value());
            }
            number(epochs, record.offset());
            number(epochs, record.leaderEpoch().orElse(-1));
            number(epochs, record.timestampType().id);
        }

        private static void number(MessageDigest digest, long value) {
            digest.update(ByteBuffer.allocate(8).putLong(0, value));
        }

        private void bytes(byte[] value) {
            number(records, value == null ? -1 : value.length);
            if (value != null) {
                records.update(value);
                bytes += value.length;
            }
        }

        ObjectNode report() {
            return JSON.createObjectNode()
                    .put("count", count)
                    .put("bytes", bytes)
                    .put("first_offset", first)
                    .put("last_offset", last)
                    .put("sha256", HexFormat.of().formatHex(records.digest()))
                    .put("epochs_sha256", HexFormat.of().formatHex(epochs.digest()));
        }
    }

    // --- fields of a request

    private static String bootstrap(JsonNode r) {
        return r.path("bootstrap").asText();
    }

    private static TopicPartition partition(JsonNode r) {
        return new TopicPartition(r.path("topic").asText(), r.path("partition").asInt());
    }

    private static IsolationLevel isolation(JsonNode r) {
        return r.path("isolation").asText().equals("read_committed")
                ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
    }

    private static long deadline(JsonNode r) {
        return System.nanoTime()
                + TimeUnit.MILLISECONDS.toNanos(r.path("timeout_ms").asLong(60_000));
    }

    private static Map<String, String> strings(JsonNode object) {
        Map<String, String> map = new HashMap<>();
        object.fields().forEachRemaining(entry -> map.put(entry.getKey(), entry.getValue().asText()));
        return map;
    }

    private static List<Integer> ints(JsonNode array) {
        List<Integer> list = new ArrayList<>();
        array.forEach(item -> list.add(item.asInt()));
        return list;
    }

    private static Map<Integer, List<Integer>> assignment(JsonNode partitions) {
        Map<Integer, List<Integer>> map = new HashMap<>();
        for (int i = 0; i < partitions.size(); i++) {
            map.put(i, ints(partitions.get(i)));
        }
        return Collections.unmodifiableMap(map);
    }
}
