// Writes payments with segmentio/kafka-go, or reads them in a group where it is given a topic to read.
// It knows nothing of linkflap but the address and the topic. This client has no transactions, and no
// idempotence: each write waits for all replicas, and a write that failed is made again.
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

	"github.com/segmentio/kafka-go"
)

func main() {
	stop, done := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer done()
	brokers := strings.Split(os.Getenv("LINKFLAP_BOOTSTRAP"), ",")
	if topic := os.Getenv("LINKFLAP_READS"); topic != "" {
		read(stop, brokers, topic)
		return
	}
	writer := &kafka.Writer{
		Addr:         kafka.TCP(brokers...),
		Topic:        os.Getenv("LINKFLAP_WRITES"),
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond,
	}
	defer writer.Close()
	for number := 0; stop.Err() == nil; number++ {
		var payments []kafka.Message
		for part := range 20 {
			payments = append(payments, kafka.Message{Value: fmt.Appendf(nil, "payment %d.%d", number, part)})
		}
		if err := writer.WriteMessages(stop, payments...); err != nil {
			log.Print(err)
		}
	}
}

// read adds payments up, and commits what it has added.
func read(stop context.Context, brokers []string, topic string) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        brokers,
		GroupID:        "ledger",
		Topic:          topic,
		SessionTimeout: 6 * time.Second,
		MaxWait:        200 * time.Millisecond,
		IsolationLevel: kafka.ReadCommitted,
		StartOffset:    kafka.FirstOffset,
		CommitInterval: 200 * time.Millisecond,
	})
	defer reader.Close()
	total := 0
	for {
		payment, err := reader.FetchMessage(stop)
		if err != nil {
			log.Print(err) // linkflap starts it again, unless it was asked to stop
			break
		}
		total++
		if err := reader.CommitMessages(stop, payment); err != nil {
			log.Print(err) // it commits with the next ones
		}
	}
	log.Printf("%d payments", total)
}
