// Writes payments in transactions with sarama, or reads them in a group where it is given a topic to
// read. It knows nothing of linkflap but the address and the topic.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	stop, done := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer done()
	brokers := strings.Split(os.Getenv("LINKFLAP_BOOTSTRAP"), ",")
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	if topic := os.Getenv("LINKFLAP_READS"); topic != "" {
		read(stop, brokers, config, topic)
		return
	}
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = "payments"
	config.Producer.Transaction.Timeout = 10 * time.Second
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		log.Fatal(err) // linkflap starts it again
	}
	defer producer.Close()
	for number := 0; stop.Err() == nil; number++ {
		if err := pay(producer, number); err != nil {
			log.Fatal(err)
		}
	}
}

// pay writes one transaction of twenty payments; every fifth is aborted.
func pay(producer sarama.SyncProducer, number int) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	var payments []*sarama.ProducerMessage
	for part := range 20 {
		payments = append(payments, &sarama.ProducerMessage{
			Topic: os.Getenv("LINKFLAP_WRITES"),
			Value: sarama.StringEncoder(fmt.Sprintf("payment %d.%d", number, part)),
		})
	}
	if err := producer.SendMessages(payments); err != nil || number%5 == 4 {
		return producer.AbortTxn()
	}
	return producer.CommitTxn()
}

// ledger marks payments as read, and sarama commits what is marked.
type ledger struct{}

func (ledger) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (ledger) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (ledger) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case payment, open := <-claim.Messages():
			if !open {
				return nil
			}
			session.MarkMessage(payment, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func read(stop context.Context, brokers []string, config *sarama.Config, topic string) {
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = time.Second
	group, err := sarama.NewConsumerGroup(brokers, "ledger", config)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	for stop.Err() == nil {
		if err := group.Consume(stop, []string{topic}, ledger{}); err != nil {
			log.Print(err)
		}
	}
}
