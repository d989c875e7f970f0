package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// consumeKafkaGo is an ordinary consumer of segmentio's kafka-go. It tells no assignments: the library has no callback for
// them.
func (m *member) consumeKafkaGo() error {
	config, err := m.kafkaGoConfig()
	if err != nil {
		return err
	}
	reader := kafkago.NewReader(config)
	defer reader.Close()
	m.say("ready", nil)
	held := uncommittedMessages{job: &m.job}
	for m.stopping.Err() == nil {
		ctx, cancel := context.WithTimeout(m.stopping, poll)
		message, err := reader.FetchMessage(ctx)
		cancel()
		at := now()
		if err == nil {
			crc := crc32.Update(crc32.ChecksumIEEE(message.Key), crc32.IEEETable, message.Value)
			row := []any{at, message.Partition, message.Offset, message.Topic, crc}
			m.say("record", map[string]any{"r": [][]any{row}})
			held.received(at, message)
			// As ReadMessage does, which loses the message where its context ends in the commit. Without an interval the
			// answer is waited for, and what was asked for before a rebalance is committed after it, by whoever asked.
			if m.Commit == "auto" && config.CommitInterval == 0 {
				m.commitMessages(reader, []kafkago.Message{message})
			} else if m.Commit == "auto" {
				err = reader.CommitMessages(m.stopping, message)
			}
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			m.say("error", map[string]any{"error": err.Error()})
		}
		if due := held.due(at); len(due) > 0 {
			m.commitMessages(reader, due)
		}
	}
	return nil
}

func (m *member) commitMessages(reader *kafkago.Reader, due []kafkago.Message) {
	refused := any(nil)
	if err := reader.CommitMessages(m.stopping, due...); err != nil {
		refused = err.Error()
	}
	rows := [][]any{}
	for _, message := range due {
		rows = append(rows, []any{message.Topic, message.Partition, message.Offset + 1, refused})
	}
	m.say("commit", map[string]any{"o": rows, "error": refused})
}

var kafkaGoBalancers = map[string]kafkago.GroupBalancer{
	"range":      kafkago.RangeGroupBalancer{},
	"roundrobin": kafkago.RoundRobinGroupBalancer{},
}

// kafkaGoConfig translates Kafka's settings.
func (m *member) kafkaGoConfig() (config kafkago.ReaderConfig, err error) {
	config.GroupTopics = m.Topics
	for name, given := range m.Config {
		text, number := fmt.Sprint(given), 0.0
		if value, is := given.(float64); is {
			number = value
		}
		milliseconds := time.Duration(number) * time.Millisecond
		known := true
		switch name {
		case "bootstrap.servers":
			config.Brokers = strings.Split(text, ",")
		case "group.id":
			config.GroupID = text
		case "client.id":
			config.Dialer = &kafkago.Dialer{ClientID: text, Timeout: 10 * time.Second, DualStack: true}
		case "session.timeout.ms":
			config.SessionTimeout = milliseconds
		case "heartbeat.interval.ms":
			config.HeartbeatInterval = milliseconds
		case "auto.commit.interval.ms":
			config.CommitInterval = milliseconds
		case "enable.auto.commit":
			known = given == false
		case "auto.offset.reset":
			config.StartOffset, known = map[string]int64{"earliest": kafkago.FirstOffset, "latest": kafkago.LastOffset}[text]
		case "isolation.level":
			config.IsolationLevel, known = map[string]kafkago.IsolationLevel{"read_committed": kafkago.ReadCommitted, "read_uncommitted": kafkago.ReadUncommitted}[text]
		case "partition.assignment.strategy":
			balancer, is := kafkaGoBalancers[text]
			config.GroupBalancers, known = []kafkago.GroupBalancer{balancer}, is
		default:
			known = false
		}
		if !known {
			return config, fmt.Errorf("kafka-go: no setting %s=%v", name, given)
		}
	}
	return config, nil
}

// uncommittedMessages is what uncommitted is, of kafka-go's messages.
type uncommittedMessages struct {
	*job
	batches []messages
}

type messages struct {
	since float64
	last  map[string]kafkago.Message
}

func (u *uncommittedMessages) received(at float64, message kafkago.Message) {
	if u.Commit != "sync" && u.Commit != "worker" {
		return
	}
	if len(u.batches) == 0 || at-u.batches[len(u.batches)-1].since >= u.CommitEveryS {
		u.batches = append(u.batches, messages{at, map[string]kafkago.Message{}})
	}
	u.batches[len(u.batches)-1].last[fmt.Sprint(message.Topic, "-", message.Partition)] = message
}

func (u *uncommittedMessages) due(at float64) (due []kafkago.Message) {
	after := u.CommitEveryS
	if u.Commit == "worker" {
		after = u.HoldS
	}
	for len(u.batches) > 0 && at-u.batches[0].since >= after {
		for _, message := range u.batches[0].last {
			due = append(due, message)
		}
		u.batches = u.batches[1:]
	}
	return due
}
