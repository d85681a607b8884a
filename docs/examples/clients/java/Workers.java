// Accepts, releases and rejects payments as a member of a share group (KIP-932), with Kafka's Java client. It knows
// nothing of linkflap but the address and the topic.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Workers {
    static volatile boolean stopping = false;

    public static void main(String[] arguments) throws Exception {
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping = true;
            try {
                main.join(5000);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }));
        String where = System.getenv("LINKFLAP_BOOTSTRAP");
        beginAtTheStart(where);
        work(where, System.getenv("LINKFLAP_READS"));
    }

    static void beginAtTheStart(String where) throws Exception {
        var group = new ConfigResource(ConfigResource.Type.GROUP, "workers");
        var earliest = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        try (var admin = Admin.create(Map.of("bootstrap.servers", where))) {
            admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        }
    }

    static void work(String where, String topic) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", where,
                "group.id", "workers",
                "share.acknowledgement.mode", "explicit");
        var text = new StringDeserializer();
        var random = new Random();
        int total = 0;
        try (var consumer = new KafkaShareConsumer<String, String>(settings, text, text)) {
            consumer.subscribe(List.of(topic));
            while (!stopping) {
                var payments = consumer.poll(Duration.ofMillis(200));
                payments.forEach(payment -> consumer.acknowledge(payment, switch (random.nextInt(50)) {
                    case 0 -> AcknowledgeType.RELEASE;
                    case 1 -> AcknowledgeType.REJECT;
                    default -> AcknowledgeType.ACCEPT;
                }));
                total += payments.count();
                if (random.nextBoolean()) { // else they go with the next fetch
                    consumer.commitSync(Duration.ofSeconds(5));
                }
            }
        } catch (KafkaException error) {
            System.out.println(error); // linkflap starts it again
        }
        System.out.println(total + " payments");
    }
}
