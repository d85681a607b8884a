// Writes payments in transactions with KafkaJS, or reads them in a group where it is given a topic to
// read. It knows nothing of linkflap but the address and the topic.
const { Kafka } = require("kafkajs");

const kafka = new Kafka({ clientId: "payments", brokers: process.env.LINKFLAP_BOOTSTRAP.split(",") });
let stopping = false;
process.on("SIGTERM", () => (stopping = true));

// One transaction of twenty payments; every fifth is aborted.
async function pay(producer, number) {
  const transaction = await producer.transaction();
  const payments = Array.from({ length: 20 }, (_, part) => ({ value: `payment ${number}.${part}` }));
  try {
    await transaction.send({ topic: process.env.LINKFLAP_WRITES, messages: payments });
    await (number % 5 === 4 ? transaction.abort() : transaction.commit());
  } catch (error) {
    await transaction.abort();
    throw error;
  }
}

async function write() {
  const producer = kafka.producer({
    transactionalId: "payments",
    transactionTimeout: 10000,
    idempotent: true,
    maxInFlightRequests: 1,
  });
  await producer.connect();
  for (let number = 0; !stopping; number++) await pay(producer, number);
  await producer.disconnect();
}

// Adds payments up; KafkaJS commits them after each batch.
async function read(topic) {
  const consumer = kafka.consumer({ groupId: "ledger", sessionTimeout: 6000, heartbeatInterval: 1000 });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let total = 0;
  await consumer.run({ eachBatch: async ({ batch }) => void (total += batch.messages.length) });
  while (!stopping) await new Promise((resolve) => setTimeout(resolve, 100));
  await consumer.disconnect();
  console.log(`${total} payments`);
}

(process.env.LINKFLAP_READS ? read(process.env.LINKFLAP_READS) : write()).catch((error) => {
  console.error(error);
  process.exit(1); // linkflap starts it again
});
