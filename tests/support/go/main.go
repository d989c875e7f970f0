// Command consumers runs 1..n ordinary consumers of a Go library, franz-go, sarama or kafka-go, each in a goroutine. Argument,
// commands on standard input and lines on standard output are those of the Python worker (clients/worker.py), where they
// are described.
//
// franz-go leaves the commit of what was read to a callback for revoked partitions where there is one: only with the setting
// "on.revoked", "commit" or "nothing".
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	shutdown = 20 * time.Second
	poll     = 100 * time.Millisecond
	atOnce   = 500
)

type job struct {
	Kind         string   `json:"kind"`
	Topics       []string `json:"topics"`
	Commit       string   `json:"commit"`
	CommitEveryS float64  `json:"commit_every_s"`
	HoldS        float64  `json:"hold_s"`
	Members      []spec   `json:"members"`
}

type spec struct {
	Name   string         `json:"name"`
	Config map[string]any `json:"config"`
	DelayS float64        `json:"delay_s"`
}

type offsets = map[string]map[int32]kgo.EpochOffset

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func main() {
	var given job
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		panic(err)
	}
	process := &process{job: given, members: map[string]*member{}}
	for _, one := range given.Members {
		process.start(one)
	}
	if !process.obey() {
		os.Exit(1)
	}
}

type process struct {
	job
	out     sync.Mutex
	members map[string]*member
}

func (p *process) start(one spec) {
	m := &member{process: p, spec: one, done: make(chan struct{})}
	m.stopping, m.stop = context.WithCancel(context.Background())
	p.members[one.Name] = m
	go m.run()
}

// obey follows the commands until standard input ends; true when every member closed in time.
func (p *process) obey() bool {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		command, rest, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		switch command {
		case "start":
			var one spec
			if err := json.Unmarshal([]byte(rest), &one); err != nil {
				panic(err)
			}
			p.start(one)
		case "stop":
			for name, m := range p.members {
				if rest == "" || rest == name {
					m.stop()
				}
			}
		default:
			panic("unknown command " + lines.Text())
		}
	}
	for _, m := range p.members {
		m.stop()
	}
	late := time.After(shutdown)
	for _, m := range p.members {
		select {
		case <-m.done:
		case <-late:
			return false
		}
	}
	return true
}

func (p *process) say(name, event string, fields map[string]any) {
	line := map[string]any{"t": now(), "m": name, "e": event}
	for field, value := range fields {
		line[field] = value
	}
	written, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	p.out.Lock()
	defer p.out.Unlock()
	os.Stdout.Write(append(written, '\n'))
}

func now() float64 { return float64(time.Now().UnixNano()) / 1e9 }

type member struct {
	*process
	spec
	stopping context.Context
	stop     context.CancelFunc
	done     chan struct{}
}

func (m *member) say(event string, fields map[string]any) { m.process.say(m.Name, event, fields) }

func (m *member) run() {
	defer close(m.done)
	defer m.say("closed", nil)
	select {
	case <-m.stopping.Done():
		return
	case <-time.After(seconds(m.DelayS)):
	}
	consume := map[string]func() error{
		"franz-go": m.consume, "sarama": m.consumeSarama, "kafka-go": m.consumeKafkaGo,
	}[m.Kind]
	if err := consume(); err != nil {
		m.say("died", map[string]any{"error": err.Error()})
	}
}

func (m *member) consume() error {
	options, err := m.options()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	m.say("ready", nil)
	held := uncommitted{job: &m.job}
	for m.stopping.Err() == nil {
		ctx, cancel := context.WithTimeout(m.stopping, poll)
		fetches := client.PollRecords(ctx, atOnce)
		cancel()
		polled := now()
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) && !errors.Is(failed.Err, context.Canceled) {
				m.say("error", map[string]any{"error": failed.Err.Error()})
			}
		}
		if records := fetches.Records(); len(records) > 0 {
			rows := make([][]any, 0, len(records))
			for _, r := range records {
				crc := crc32.Update(crc32.ChecksumIEEE(r.Key), crc32.IEEETable, r.Value)
				rows = append(rows, []any{polled, r.Partition, r.Offset, r.Topic, crc})
			}
			m.say("record", map[string]any{"r": rows})
			held.received(polled, records)
		}
		if due := held.due(polled); len(due) > 0 {
			m.commit(client, due)
		}
	}
	return nil
}

func (m *member) commit(client *kgo.Client, due offsets) {
	switch m.Commit {
	case "sync":
		client.CommitOffsetsSync(context.Background(), due, m.committed)
	default:
		client.CommitOffsets(context.Background(), due, m.committed)
	}
}

func (m *member) committed(_ *kgo.Client, asked *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
	type place struct {
		topic     [16]byte
		name      string
		partition int32
	}
	codes := map[place]int16{}
	if answer != nil {
		// By name or by topic id, as the version of the request has it.
		for _, t := range answer.Topics {
			for _, p := range t.Partitions {
				codes[place{t.TopicID, t.Topic, p.Partition}] = p.ErrorCode
				codes[place{t.TopicID, "", p.Partition}] = p.ErrorCode
			}
		}
	}
	var refused any
	if err != nil {
		refused = err.Error()
	}
	rows := [][]any{}
	for _, t := range asked.Topics {
		for _, p := range t.Partitions {
			why := any(nil)
			if err != nil {
				why = err.Error()
			} else if code := max(codes[place{t.TopicID, t.Topic, p.Partition}], codes[place{t.TopicID, "", p.Partition}]); code != 0 {
				why = kerr.TypedErrorForCode(code).Message
				refused = why
			}
			rows = append(rows, []any{t.Topic, p.Partition, p.Offset, why})
		}
	}
	m.say("commit", map[string]any{"o": rows, "error": refused})
}

func (m *member) rebalanced(event string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
		rows := [][]any{}
		for topic, numbers := range given {
			for _, number := range numbers {
				rows = append(rows, []any{topic, number})
			}
		}
		m.say(event, map[string]any{"p": rows})
	}
}

// revoked is an application's own callback: with one, franz-go leaves the commit of what was read to it.
func (m *member) revoked(commits bool) func(context.Context, *kgo.Client, map[string][]int32) {
	tell := m.rebalanced("revoke")
	return func(ctx context.Context, client *kgo.Client, given map[string][]int32) {
		if commits {
			client.CommitOffsetsSync(ctx, client.UncommittedOffsets(), m.committed)
		}
		tell(ctx, client, given)
	}
}

func (m *member) options() ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.ConsumeTopics(m.Topics...),
		kgo.OnPartitionsAssigned(m.rebalanced("assign")),
		kgo.OnPartitionsLost(m.rebalanced("lost")),
	}
	for name, given := range m.Config {
		if name == "on.revoked" {
			options = append(options, kgo.OnPartitionsRevoked(m.revoked(given == "commit")))
			continue
		}
		option, err := option(name, given)
		if err != nil {
			return nil, err
		}
		options = append(options, option...)
	}
	return options, nil
}

var balancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"sticky":             kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

// option translates one of Kafka's settings.
func option(name string, given any) ([]kgo.Opt, error) {
	text, number := fmt.Sprint(given), 0.0
	if value, is := given.(float64); is {
		number = value
	}
	milliseconds := time.Duration(number) * time.Millisecond
	switch name {
	case "bootstrap.servers":
		return []kgo.Opt{kgo.SeedBrokers(strings.Split(text, ",")...)}, nil
	case "group.id":
		return []kgo.Opt{kgo.ConsumerGroup(text)}, nil
	case "group.instance.id":
		return []kgo.Opt{kgo.InstanceID(text)}, nil
	case "client.id":
		return []kgo.Opt{kgo.ClientID(text)}, nil
	case "session.timeout.ms":
		return []kgo.Opt{kgo.SessionTimeout(milliseconds)}, nil
	case "heartbeat.interval.ms":
		return []kgo.Opt{kgo.HeartbeatInterval(milliseconds)}, nil
	case "auto.commit.interval.ms":
		return []kgo.Opt{kgo.AutoCommitInterval(milliseconds)}, nil
	case "enable.auto.commit":
		if given == false {
			return []kgo.Opt{kgo.DisableAutoCommit()}, nil
		}
		return nil, nil
	case "auto.offset.reset":
		if at, known := map[string]kgo.Offset{"earliest": kgo.NewOffset().AtStart(), "latest": kgo.NewOffset().AtEnd()}[text]; known {
			return []kgo.Opt{kgo.ConsumeResetOffset(at)}, nil
		}
	case "isolation.level":
		if level, known := map[string]kgo.IsolationLevel{"read_committed": kgo.ReadCommitted(), "read_uncommitted": kgo.ReadUncommitted()}[text]; known {
			return []kgo.Opt{kgo.FetchIsolationLevel(level)}, nil
		}
	case "partition.assignment.strategy":
		if balancer, known := balancers[text]; known {
			return []kgo.Opt{kgo.Balancers(balancer())}, nil
		}
	}
	return nil, fmt.Errorf("franz-go: no setting %s=%v", name, given)
}

// uncommitted tells which offsets the application has to commit by hand, and since when; as in the Python worker.
type uncommitted struct {
	*job
	batches []batch
}

type batch struct {
	since   float64
	offsets offsets
}

func (u *uncommitted) received(at float64, records []*kgo.Record) {
	if !slices.Contains([]string{"sync", "async", "worker"}, u.Commit) {
		return
	}
	if len(u.batches) == 0 || at-u.batches[len(u.batches)-1].since >= u.CommitEveryS {
		u.batches = append(u.batches, batch{at, offsets{}})
	}
	add(u.batches[len(u.batches)-1].offsets, records)
}

func add(to offsets, records []*kgo.Record) {
	for _, r := range records {
		if to[r.Topic] == nil {
			to[r.Topic] = map[int32]kgo.EpochOffset{}
		}
		to[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	}
}

func (u *uncommitted) due(at float64) offsets {
	after := u.CommitEveryS
	if u.Commit == "worker" {
		after = u.HoldS
	}
	due := offsets{}
	for len(u.batches) > 0 && at-u.batches[0].since >= after {
		for topic, partitions := range u.batches[0].offsets {
			if due[topic] == nil {
				due[topic] = map[int32]kgo.EpochOffset{}
			}
			for partition, offset := range partitions {
				due[topic][partition] = offset
			}
		}
		u.batches = u.batches[1:]
	}
	return due
}
