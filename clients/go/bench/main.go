// Command bench measures the client against a server that runs. clients/README.md has the contract: its arguments, its cases,
// and the line of JSON that it prints.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/boltq/boltq/clients/go"
)

// handlers is how many a worker runs at a time.
const handlers = 64

// measured does one case with so many messages and says how long that took.
type measured func(ctx context.Context, client *boltq.Client, queue string, messages int, payload []byte) (time.Duration, error)

var cases = map[string]measured{
	"publish_batches": publishBatches,
	"publish_single":  publishSingle,
	"worker":          work,
}

type result struct {
	Client            string  `json:"client"`
	Case              string  `json:"case"`
	Messages          int     `json:"messages"`
	PayloadBytes      int     `json:"payload_bytes"`
	Seconds           float64 `json:"seconds"`
	MessagesPerSecond float64 `json:"messages_per_second"`
}

func main() {
	address := flag.String("address", "localhost:9091", "host and port of the server")
	name := flag.String("case", "", "publish_batches, publish_single or worker")
	messages := flag.Int("messages", 100_000, "how many messages")
	payload := flag.Int("payload", 128, "bytes of each")
	flag.Parse()
	result, err := measure(*address, *name, *messages, *payload)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measure does a case in a queue of its own, a tenth of it before to warm up.
func measure(address, name string, messages, bytes int) (_ *result, err error) {
	run, ok := cases[name]
	if !ok || messages < 1 || bytes < 0 {
		return nil, fmt.Errorf("case %q with %d messages of %d bytes: see -help", name, messages, bytes)
	}
	ctx := context.Background()
	// The case is about the client and the server, and not about a million keys.
	client, err := boltq.Connect(ctx, address, boltq.WithGeneratedKeys(name == "publish_single"))
	if err != nil {
		return nil, err
	}
	queue := "bench-go-" + rand.Text()
	defer func() {
		_, deleting := client.DeleteQueue(ctx, queue)
		err = errors.Join(err, deleting, client.Close())
	}()
	payload := make([]byte, bytes)
	if _, err := run(ctx, client, queue, max(1, messages/10), payload); err != nil {
		return nil, err
	}
	took, err := run(ctx, client, queue, messages, payload)
	return &result{
		Client: "go", Case: name, Messages: messages, PayloadBytes: bytes,
		Seconds: took.Seconds(), MessagesPerSecond: float64(messages) / took.Seconds(),
	}, err
}

func publishBatches(ctx context.Context, client *boltq.Client, queue string, messages int, payload []byte) (time.Duration, error) {
	begun := time.Now()
	publisher := client.NewPublisher(queue)
	confirms := make([]*boltq.Confirm, messages)
	for index := range confirms {
		var err error
		if confirms[index], err = publisher.Publish(ctx, boltq.Message{Payload: payload}); err != nil {
			return 0, err
		}
	}
	if err := publisher.Close(ctx); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	for _, confirm := range confirms {
		if _, err := confirm.Wait(ctx); err != nil {
			return 0, err
		}
	}
	return took, nil
}

func publishSingle(ctx context.Context, client *boltq.Client, queue string, messages int, payload []byte) (time.Duration, error) {
	begun := time.Now()
	for range messages {
		if _, err := client.Publish(ctx, queue, boltq.Message{Payload: payload}); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}

func work(ctx context.Context, client *boltq.Client, queue string, messages int, payload []byte) (time.Duration, error) {
	// What an earlier case has left is not to be counted.
	if _, err := client.PurgeQueue(ctx, queue); err != nil && !errors.Is(err, boltq.ErrNotFound) {
		return 0, err
	}
	if _, err := publishBatches(ctx, client, queue, messages, payload); err != nil {
		return 0, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var handled atomic.Int64
	begun := time.Now()
	var took time.Duration
	err := client.NewWorker(queue, func(context.Context, *boltq.Delivery) error {
		if handled.Add(1) == int64(messages) {
			took = time.Since(begun)
			stop()
		}
		return nil
	}, boltq.WithConcurrency(handlers)).Run(ctx)
	return took, err
}
