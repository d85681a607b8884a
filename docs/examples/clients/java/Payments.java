// Writes payments in transactions with Kafka's Java client, or reads them in a group where it is given
// a topic to read. It knows nothing of linkflap but the address and the topic.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Payments {
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
        String reads = System.getenv("LINKFLAP_READS");
        if (reads.isEmpty()) {
            write(System.getenv("LINKFLAP_WRITES"));
        } else {
            read(reads);
        }
    }

    static void write(String topic) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", System.getenv("LINKFLAP_BOOTSTRAP"),
                "transactional.id", "payments",
                "transaction.timeout.ms", 10000,
                "linger.ms", 5);
        var text = new StringSerializer();
        try (var producer = new KafkaProducer<String, String>(settings, text, text)) {
            producer.initTransactions();
            for (int number = 0; !stopping; number++) {
                pay(producer, topic, number);
            }
        }
    }

    /** One transaction of twenty payments; every fifth is aborted. */
    static void pay(KafkaProducer<String, String> producer, String topic, int number) {
        try {
            producer.beginTransaction();
            for (int part = 0; part < 20; part++) {
                producer.send(new ProducerRecord<>(topic, "payment " + number + "." + part));
            }
            if (number % 5 == 4) {
                producer.flush();
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        } catch (ProducerFencedException error) {
            throw error; // linkflap starts it again
        } catch (KafkaException error) {
            producer.abortTransaction();
        }
    }

    static void read(String topic) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", System.getenv("LINKFLAP_BOOTSTRAP"),
                "group.id", "ledger",
                "session.timeout.ms", 6000,
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false);
        var text = new StringDeserializer();
        int total = 0;
        try (var consumer = new KafkaConsumer<String, String>(settings, text, text)) {
            consumer.subscribe(List.of(topic));
            while (!stopping) {
                int got = consumer.poll(Duration.ofMillis(200)).count();
                total += got;
                try {
                    consumer.commitSync(Duration.ofSeconds(5));
                } catch (KafkaException error) {
                    System.out.println(error); // it commits with the next ones
                }
            }
            System.out.println(total + " payments");
        }
    }
}
