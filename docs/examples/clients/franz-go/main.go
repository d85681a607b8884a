// Writes payments in transactions with franz-go, or reads them in a group where it is given a topic
// to read. It knows nothing of linkflap but the address and the topic.
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

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	stop, done := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer done()
	if topic := os.Getenv("LINKFLAP_READS"); topic != "" {
		read(stop, topic)
		return
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("LINKFLAP_BOOTSTRAP"), ",")...),
		kgo.DefaultProduceTopic(os.Getenv("LINKFLAP_WRITES")),
		kgo.TransactionalID("payments"),
		kgo.TransactionTimeout(10*time.Second),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for number := 0; stop.Err() == nil; number++ {
		if err := pay(client, number); err != nil {
			log.Fatal(err) // linkflap starts it again
		}
	}
}

// read adds payments up, and commits what it has added.
func read(stop context.Context, topic string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("LINKFLAP_BOOTSTRAP"), ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup("ledger"),
		kgo.SessionTimeout(6*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	total := 0
	for stop.Err() == nil {
		payments := client.PollFetches(stop)
		total += payments.NumRecords()
		if err := client.CommitUncommittedOffsets(stop); err != nil {
			log.Print(err) // it commits with the next ones
		}
	}
	log.Printf("%d payments", total)
}

// pay writes one transaction of twenty payments; every fifth is aborted.
func pay(client *kgo.Client, number int) error {
	within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	var payments []*kgo.Record
	for part := range 20 {
		payments = append(payments, kgo.StringRecord(fmt.Sprintf("payment %d.%d", number, part)))
	}
	end := kgo.TryCommit
	if err := client.ProduceSync(within, payments...).FirstErr(); err != nil || number%5 == 4 {
		end = kgo.TryAbort
	}
	return client.EndTransaction(within, end)
}
