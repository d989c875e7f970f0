package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// consumeSarama is an ordinary consumer of sarama, whose partitions are each read in a goroutine of their own. It tells no
// commits: Commit answers nothing.
func (m *member) consumeSarama() error {
	config, bootstrap, group, err := m.saramaConfig()
	if err != nil {
		return err
	}
	client, err := sarama.NewConsumerGroup(bootstrap, group, config)
	if err != nil {
		return err
	}
	defer client.Close()
	m.say("ready", nil)
	go func() {
		for failed := range client.Errors() {
			m.say("error", map[string]any{"error": failed.Error()})
		}
	}()
	for m.stopping.Err() == nil {
		// Returns at each rebalance, and has to be called anew.
		if err := client.Consume(m.stopping, m.Topics, saramaHandler{m}); err != nil && m.stopping.Err() == nil {
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return err
			}
			m.say("error", map[string]any{"error": err.Error()})
		}
	}
	return nil
}

type saramaHandler struct{ *member }

func (h saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	h.rebalanced("assign")(context.Background(), nil, session.Claims())
	if h.Commit == "sync" {
		go h.commitOften(session)
	}
	return nil
}

func (h saramaHandler) commitOften(session sarama.ConsumerGroupSession) {
	every := time.NewTicker(seconds(h.CommitEveryS))
	defer every.Stop()
	for {
		select {
		case <-every.C:
			session.Commit()
		case <-session.Context().Done():
			return
		}
	}
}

func (h saramaHandler) Cleanup(session sarama.ConsumerGroupSession) error {
	h.rebalanced("revoke")(context.Background(), nil, session.Claims())
	return nil
}

func (h saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case first, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.handle(session, first, claim.Messages())
		case <-session.Context().Done():
			return nil
		}
	}
}

// handle reports what has come by now as one poll, and marks it.
func (h saramaHandler) handle(session sarama.ConsumerGroupSession, first *sarama.ConsumerMessage, more <-chan *sarama.ConsumerMessage) {
	at := now()
	rows, last := [][]any{}, first
	for next, open := first, true; open && next != nil; {
		crc := crc32.Update(crc32.ChecksumIEEE(next.Key), crc32.IEEETable, next.Value)
		rows, last = append(rows, []any{at, next.Partition, next.Offset, next.Topic, crc}), next
		if len(rows) == atOnce {
			break
		}
		select {
		case next, open = <-more:
		default:
			next = nil
		}
	}
	h.say("record", map[string]any{"r": rows})
	if h.Commit != "none" {
		session.MarkMessage(last, "")
	}
}

var saramaStrategies = map[string]func() sarama.BalanceStrategy{
	"range":      sarama.NewBalanceStrategyRange,
	"roundrobin": sarama.NewBalanceStrategyRoundRobin,
	"sticky":     sarama.NewBalanceStrategySticky,
}

// saramaConfig translates Kafka's settings.
func (m *member) saramaConfig() (config *sarama.Config, bootstrap []string, group string, err error) {
	config = sarama.NewConfig()
	config.Consumer.Return.Errors = true
	for name, given := range m.Config {
		text, number := fmt.Sprint(given), 0.0
		if value, is := given.(float64); is {
			number = value
		}
		milliseconds := time.Duration(number) * time.Millisecond
		known := true
		switch name {
		case "bootstrap.servers":
			bootstrap = strings.Split(text, ",")
		case "group.id":
			group = text
		case "group.instance.id":
			config.Consumer.Group.InstanceId = text
		case "client.id":
			config.ClientID = text
		case "session.timeout.ms":
			config.Consumer.Group.Session.Timeout = milliseconds
		case "heartbeat.interval.ms":
			config.Consumer.Group.Heartbeat.Interval = milliseconds
		case "auto.commit.interval.ms":
			config.Consumer.Offsets.AutoCommit.Interval = milliseconds
		case "enable.auto.commit":
			config.Consumer.Offsets.AutoCommit.Enable = given != false
		case "auto.offset.reset":
			config.Consumer.Offsets.Initial, known = map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}[text]
		case "isolation.level":
			config.Consumer.IsolationLevel, known = map[string]sarama.IsolationLevel{"read_committed": sarama.ReadCommitted, "read_uncommitted": sarama.ReadUncommitted}[text]
		case "partition.assignment.strategy":
			strategy, is := saramaStrategies[text]
			if known = is; is {
				config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
			}
		default:
			known = false
		}
		if !known {
			return nil, nil, "", fmt.Errorf("sarama: no setting %s=%v", name, given)
		}
	}
	return config, bootstrap, group, nil
}
