// Command quickstart is the example of README.md: it publishes a message and works on messages until it is stopped.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/boltq/boltq/clients/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	client, err := boltq.Connect(ctx, "localhost:9091")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	// Stored when it returns, as durably as the server promises.
	if _, err := client.Publish(ctx, "mails", boltq.Message{Payload: []byte("to: ann")}); err != nil {
		log.Fatal(err)
	}

	// Works until SIGTERM, and then finishes what it has begun.
	worker := client.NewWorker("mails", func(ctx context.Context, delivery *boltq.Delivery) error {
		fmt.Printf("%s\n", delivery.Payload)
		return nil // acknowledged; an error gives it back
	}, boltq.WithConcurrency(8))
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
