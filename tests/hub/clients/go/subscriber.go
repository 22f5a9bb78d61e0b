package main

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A subscriber prints what it receives, and knows which confirmations were asked for: the others
// come after a reconnect, when the client subscribes again unasked.
type subscriber struct {
	pubsub *redis.PubSub
	// One confirmation that was asked for.
	confirmed chan struct{}

	lock     sync.Mutex
	asked    int
	standing int
	repeated int
}

func newSubscriber(commands *redis.Client) *subscriber {
	made := &subscriber{pubsub: commands.Subscribe(background), confirmed: make(chan struct{}, 16)}
	go made.listen()
	return made
}

func (s *subscriber) listen() {
	for event := range s.pubsub.ChannelWithSubscriptions() {
		switch event := event.(type) {
		case *redis.Message:
			say("message", event.Pattern, event.Channel, event.Payload)
		case *redis.Subscription:
			s.confirm(event.Kind)
		}
	}
}

func (s *subscriber) confirm(kind string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.asked > 0 {
		s.asked--
		switch kind {
		case "subscribe", "psubscribe", "ssubscribe":
			s.standing++
		default:
			s.standing--
		}
		s.confirmed <- struct{}{}
		return
	}
	s.repeated++
	if s.repeated == s.standing {
		s.repeated = 0
		say("again")
	}
}

// Calls a method of the client, and waits until the server has confirmed each name.
func (s *subscriber) ask(method func(context.Context, ...string) error, names []string) (any, error) {
	s.lock.Lock()
	s.asked = len(names)
	s.lock.Unlock()
	if err := method(background, names...); err != nil {
		return nil, err
	}
	for range names {
		<-s.confirmed
	}
	return len(names), nil
}
