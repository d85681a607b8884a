// Writes payments in transactions with KafkaJS, and knows nothing of linkflap but the address and
// the topic.
const { Kafka } = require("kafkajs");

const kafka = new Kafka({ clientId: "payments", brokers: process.env.LINKFLAP_BOOTSTRAP.split(",") });
const producer = kafka.producer({
  transactionalId: "payments",
  transactionTimeout: 10000,
  idempotent: true,
  maxInFlightRequests: 1,
});
let stopping = false;
process.on("SIGTERM", () => (stopping = true));

// One transaction of twenty payments; every fifth is aborted.
async function pay(number) {
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

async function main() {
  await producer.connect();
  for (let number = 0; !stopping; number++) await pay(number);
  await producer.disconnect();
}

main().catch((error) => {
  console.error(error);
  process.exit(1); // linkflap starts it again
});
