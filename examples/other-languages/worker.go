// worker PORT: puts three messages with keys, then handles what is in the queue.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	queue = "il:{orders}"
	lease = 30_000_000 // µs
	wait  = 5_000_000
)

type message struct{ token, id, attempt, payload string }

type worker struct {
	client *redis.Client
	name   string // never used before, nor by anybody else
	number int64
	parks  bool // whether il1_lease itself waits
	lines  *bufio.Scanner
}

// call numbers each call: go-redis sends it again as it was after a lost connection, so it is done once.
func (w *worker) call(function string, words ...any) ([]string, error) {
	w.number++
	arguments := append([]any{w.name, w.number}, words...)
	return w.client.FCall(context.Background(), function, []string{queue}, arguments...).StringSlice()
}

func (w *worker) put(payload string, keys ...string) []any {
	words := []any{payload, len(keys), 0, 0}
	for _, key := range keys {
		words = append(words, key)
	}
	return words
}

func (w *worker) lease(count int) (found []message, next string, err error) {
	reply, err := w.call("il1_lease", wait, count, lease, "any")
	if err != nil {
		return nil, "", err
	}
	for at := 4; at < len(reply); {
		found = append(found, message{reply[0], reply[at], reply[at+2], reply[at+3]})
		exclusive, _ := strconv.Atoi(reply[at+4])
		shared, _ := strconv.Atoi(reply[at+5])
		at += 6 + exclusive + shared
	}
	return found, reply[2], nil
}

// sleep until a function on Redis pushes an element, which means that a message may be ready.
func (w *worker) sleep(next string) error {
	due := int64(wait)
	if next != "" {
		nearest, err := strconv.ParseInt(next, 10, 64)
		if err != nil {
			return err
		}
		due = min(due, nearest)
	}
	if due == 0 {
		return nil
	}
	// Whole ms at least: 0 would be for ever.
	timeout := max(time.Duration(due)*time.Microsecond, time.Millisecond)
	_, err := w.client.Do(context.Background(), "BLPOP", queue+":wake:any", timeout.Seconds()).Result()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

func (w *worker) settle(words ...any) (string, error) {
	reply, err := w.call("il1_settle", words...)
	if err != nil {
		return "", err
	}
	if reply[0] == "LEASELOST" {
		return "lost: somebody else has it now, so nothing was settled", nil
	}
	return reply[0], nil
}

// handle stands for the work: takes until a line is typed. "fail" fails; the end of input ends the worker.
func (w *worker) handle(one message) error {
	fmt.Printf("handling %s %s attempt %s\n", one.id, one.payload, one.attempt)
	if !w.lines.Scan() {
		os.Exit(0)
	}
	if w.lines.Text() == "fail" {
		return errors.New("told to fail")
	}
	return nil
}

func (w *worker) run() error {
	version, err := w.client.FCall(context.Background(), "il1_version", nil).StringSlice()
	if err != nil {
		return err
	}
	w.parks = slices.Contains(version[2:], "parks")
	words := slices.Concat([]any{0},
		w.put("open ann", "account:ann"),
		w.put("ann to bob", "account:ann", "account:bob"),
		w.put("close bob", "account:bob"))
	put, err := w.call("il1_put", words...)
	if err != nil {
		return err
	}
	fmt.Println("put", put[0], put[2], put[4])
	for {
		found, next, err := w.lease(1)
		if err != nil {
			return err
		}
		if next == "sealed" { // by an operator, and all is settled
			return nil
		}
		if len(found) == 0 && !w.parks {
			if err := w.sleep(next); err != nil {
				return err
			}
		}
		for _, one := range found {
			words := []any{"ACK", one.token, one.id}
			if failure := w.handle(one); failure != nil {
				// An empty delay: the backoff of the retry policy.
				words = []any{"NACK", one.token, one.id, "", failure.Error()}
			}
			answer, err := w.settle(words...)
			if err != nil {
				return err
			}
			fmt.Println(answer)
		}
	}
}

func main() {
	// Longer than a call may wait.
	options := redis.Options{Addr: "127.0.0.1:" + os.Args[1], ReadTimeout: 10 * time.Second}
	w := worker{
		client: redis.NewClient(&options),
		name:   "go-" + rand.Text(),
		lines:  bufio.NewScanner(os.Stdin),
	}
	if err := w.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
