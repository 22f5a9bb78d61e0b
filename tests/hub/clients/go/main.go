// Usage: clients PORT PROTOCOL NAME
//
// A client of the hub by go-redis: commands come in by lines, replies and events go out by lines.
// tests/hub/protocol/foreign.py says which.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

var background = context.Background()

func main() {
	port, protocol, name := os.Args[1], os.Args[2], os.Args[3]
	// 0 is the client's own choice.
	number, _ := strconv.Atoi(protocol)
	commands := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + port, ClientName: name, Protocol: number,
	})
	subscriber := newSubscriber(commands)
	say("connected")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		reply, err := answer(commands, subscriber, words[0], words[1:])
		if err != nil {
			say("!", typeOf(err), err.Error())
		} else {
			say("=", reply)
		}
	}
	subscriber.pubsub.Close()
	commands.Close()
}

func answer(commands *redis.Client, to *subscriber, verb string, words []string) (any, error) {
	pubsub := to.pubsub
	switch verb {
	case "version":
		return redis.Version(), nil
	case "ping":
		return commands.Ping(background).Result()
	case "id":
		return commands.ClientID(background).Result()
	case "name":
		return commands.ClientGetName(background).Result()
	case "info":
		return info(commands)
	case "unknown":
		return commands.Do(background, "NONSENSE", "x").Result()
	case "publish":
		return commands.Publish(background, words[0], words[1]).Result()
	case "spublish":
		return commands.SPublish(background, words[0], words[1]).Result()
	case "pipeline":
		return pipeline(commands, words[0], words[1])
	case "subscribe":
		return to.ask(pubsub.Subscribe, words)
	case "psubscribe":
		return to.ask(pubsub.PSubscribe, words)
	case "ssubscribe":
		return to.ask(pubsub.SSubscribe, words)
	case "unsubscribe":
		return to.ask(pubsub.Unsubscribe, words)
	case "punsubscribe":
		return to.ask(pubsub.PUnsubscribe, words)
	case "sunsubscribe":
		return to.ask(pubsub.SUnsubscribe, words)
	}
	return nil, fmt.Errorf("no verb %s", verb)
}

func info(commands *redis.Client) (any, error) {
	found, err := commands.ClientInfo(background).Result()
	if err != nil {
		return nil, err
	}
	return fmt.Sprintf("id=%d name=%s sub=%d db=%d resp=%d",
		found.ID, found.Name, found.Sub, found.DB, found.Resp), nil
}

func pipeline(commands *redis.Client, channel, count string) (any, error) {
	total, err := strconv.Atoi(count)
	if err != nil {
		return nil, err
	}
	replies, err := commands.Pipelined(background, func(pipe redis.Pipeliner) error {
		for number := range total {
			pipe.Publish(background, channel, number)
		}
		return nil
	})
	var receivers int64
	for _, reply := range replies {
		receivers += reply.(*redis.IntCmd).Val()
	}
	return fmt.Sprintf("%d %d", len(replies), receivers), err
}

// The client's own type for an error that the server replied with.
func typeOf(err error) string {
	if _, replied := err.(redis.Error); replied {
		return "redis.Error"
	}
	return fmt.Sprintf("%T", err)
}

func say(words ...any) {
	parts := make([]string, len(words))
	for at, word := range words {
		parts[at] = fmt.Sprint(word)
	}
	// One write a line, for two goroutines print.
	os.Stdout.WriteString(strings.Join(parts, "\t") + "\n")
}
