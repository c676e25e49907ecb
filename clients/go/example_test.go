package boltq_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/boltq/boltq/clients/go"
)

// Examples run against a server of the test bed, which takes the place of "localhost:9091".

// address is where the server of the examples listens.
var address = "localhost:9091"

func ExampleConnect() {
	ctx := context.Background()
	// Several addresses, with commas in between, are nodes of one cluster.
	client, err := boltq.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	stats, err := client.Stats(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("takes publishes:", stats.Storage.Writable)
	// Output: takes publishes: true
}

func ExampleClient_Publish() {
	ctx := context.Background()
	client, err := boltq.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	message, err := boltq.JSON(map[string]string{"to": "user@example.com"})
	if err != nil {
		log.Fatal(err)
	}
	message.IdempotencyKey = "welcome-17"
	first, err := client.Publish(ctx, "welcome_mails", message)
	if err != nil {
		log.Fatal(err)
	}
	again, err := client.Publish(ctx, "welcome_mails", message)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stored once:", first == again)
	// Output: stored once: true
}

func ExamplePublisher() {
	ctx := context.Background()
	client, err := boltq.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	publisher := client.NewPublisher("readings", boltq.WithMaxPending(1000, 4<<20))
	var confirms []*boltq.Confirm
	for reading := range 100 {
		// Waits while 1,000 are not confirmed.
		confirm, err := publisher.Publish(ctx, boltq.Message{Payload: fmt.Appendf(nil, "%d", reading)})
		if err != nil {
			log.Fatal(err)
		}
		confirms = append(confirms, confirm)
	}
	// Waits until all are.
	if err := publisher.Close(ctx); err != nil {
		log.Fatal(err)
	}
	stored := 0
	for _, confirm := range confirms {
		if _, err := confirm.Wait(ctx); err == nil {
			stored++
		}
	}
	fmt.Println(stored, "readings are stored")
	// Output: 100 readings are stored
}

func ExampleWorker() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	client, err := boltq.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Publish(ctx, "thumbnails", boltq.Message{Payload: []byte("cat.png")}); err != nil {
		log.Fatal(err)
	}

	worker := client.NewWorker("thumbnails", func(ctx context.Context, delivery *boltq.Delivery) error {
		if delivery.Attempts == 0 {
			return boltq.RetryAfter(time.Millisecond, errors.New("the disk is busy"))
		}
		fmt.Printf("made a thumbnail of %s, attempt %d\n", delivery.Payload, delivery.Attempts+1)
		stop()
		return nil
	}, boltq.WithConcurrency(8))
	// Returns when the context has ended and what was begun is finished and settled.
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: made a thumbnail of cat.png, attempt 2
}

func ExampleClient_Subscribe() {
	ctx := context.Background()
	client, err := boltq.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Publish(ctx, "orders", boltq.Message{Payload: []byte("two books")}); err != nil {
		log.Fatal(err)
	}

	deliveries, err := client.Subscribe(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	for delivery, err := range deliveries.All() {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n", delivery.Payload)
		if err := delivery.Ack(ctx); err != nil {
			log.Print(err)
		}
		break
	}
	// Output: two books
}

func ExampleClient_SubscribeTopic() {
	ctx := context.Background()
	client, err := boltq.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	prices, err := client.SubscribeTopic(ctx, "prices", boltq.WithDurable("edge-3"))
	if err != nil {
		log.Fatal(err)
	}
	defer prices.Close()
	published, err := client.PublishTopic(ctx, "prices", boltq.Message{Payload: []byte("19.99")})
	if err != nil {
		log.Fatal(err)
	}
	price, err := prices.Next()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, kept for %d subscription\n", price.Payload, published.DurableSubscriptions)
	// Output: 19.99, kept for 1 subscription
}

func ExampleKV_Set() {
	ctx := context.Background()
	client, err := boltq.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	cache := client.KV()

	// A lock that ends by itself.
	version, err := cache.Set(ctx, "lock:report", []byte("me"), boltq.IfAbsent(), boltq.WithTTL(30*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	_, err = cache.Set(ctx, "lock:report", []byte("you"), boltq.IfAbsent(), boltq.WithTTL(30*time.Second))
	fmt.Println("somebody has it:", errors.Is(err, boltq.ErrConditionNotMet))
	if err := cache.DeleteVersion(ctx, "lock:report", version); err != nil {
		log.Fatal(err)
	}
	// Output: somebody has it: true
}

// startExamples gives the examples a server.
func startExamples() {
	bed, err := newTestbed("--storage", "memory")
	if err != nil {
		log.Fatal(err)
	}
	shared.beds["examples"] = bed
	address = bed.addresses()
}
