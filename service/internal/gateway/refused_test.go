package gateway

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/internal/testkit"
	"github.com/waybill-go/waybill/service/internal/backend"
	"github.com/waybill-go/waybill/service/internal/courier"
	"github.com/waybill-go/waybill/service/internal/store/storetest"
)

// What the intake's rules allow it takes, however it has to be encoded.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := newSender(serve(t, testConfig("sqlite:"+filepath.Join(t.TempDir(), "waybill.db"), "secret")), "secret", 1)
	defer s.close()
	for i, test := range []struct{ shipment, fill string }{
		{strings.Repeat("s", 255), ""},
		{"shp_1", strings.Repeat("<", 800_000)},
	} {
		body := fmt.Sprintf(`{"eventId":"e%d","eventType":"E","occurredAt":"2026-02-26T12:00:00Z","source":"x","idempotencyKey":"k%d","payload":{"shipmentId":%q,"fill":%q}}`,
			i, i, test.shipment, test.fill)
		if a, err := s.post(t.Context(), []byte(body)); err != nil || a.status != http.StatusAccepted {
			t.Errorf("%d: %d %.200s %v", i, a.status, a.body, err)
		}
	}
}

// An event that is too long to be told whole of is told of all the same: else its dead
// letter could not be recorded.
func TestDeadLetterThatIsTooLong(t *testing.T) {
	t.Parallel()
	for what, payload := range map[string]string{
		"an event":               `{"event_id":"e1","event_type":"E","occurred_at":"2026-02-26T12:00:00Z","correlation_id":"c","tenant_id":"","station_id":"","schema_version":1,"payload":{"fill":"` + strings.Repeat("x", eventing.MaxEnvelopeBytes-300) + `"}}`,
		"bytes that do not read": `{"undecodable_base64":"` + base64.StdEncoding.EncodeToString(make([]byte, eventing.MaxEnvelopeBytes)) + `"}`,
	} {
		row, err := deadLetterRow(eventing.Failure{Now: time.Now(), Reason: eventing.ReasonRejected, Run: eventing.Run{Delivery: eventing.Delivery{
			EventID: "e1", Payload: []byte(payload),
		}}})
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		var letter deadLetter
		envelope, err := eventing.DecodeEnvelope(row.Payload)
		if err == nil {
			err = json.Unmarshal(envelope.Payload, &letter)
		}
		if err != nil || letter.EventID != "e1" || letter.TerminalReasonCode != eventing.ReasonRejected || string(letter.PayloadSnapshot) != "null" {
			t.Errorf("%s: the queue is told %.300s (%v)", what, envelope.Payload, err)
		}
	}
}

// refusing is a broker that takes no message ever.
type refusing struct{}

func (refusing) Publish(string, ...*message.Message) error {
	return eventing.Permanent(errors.New("refused"))
}
func (refusing) Close() error { return nil }

// An event that does not even come to the worker is told of as dead, too.
func TestEventThatDiedBeforeTheWorker(t *testing.T) {
	t.Parallel()
	cfg := testConfig("sqlite:"+filepath.Join(t.TempDir(), "waybill.db"), "secret")
	cfg.wrap = func(r replaceable) replaceable { return replaceable{r.events, refusing{}} }
	s := newSender(serve(t, cfg), "secret", 1)
	defer s.close()
	if a, err := s.post(t.Context(), []byte(`{"eventId":"e1","eventType":"E","occurredAt":"2026-02-26T12:00:00Z","source":"x","idempotencyKey":"k","payload":{"shipmentId":"s"}}`)); err != nil || a.status != http.StatusAccepted {
		t.Fatal(a, err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/events/e1", nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer secret")
		response, err := s.http.Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var body struct{ Events []courier.EventStatus }
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
			return err
		}
		if len(body.Events) != 1 || body.Events[0].Status != courier.StatusDeadLettered || body.Events[0].DeadLetter == nil ||
			body.Events[0].DeadLetter.ReasonCode != string(eventing.ReasonUnpublishable) {
			return fmt.Errorf("the event is %+v", body.Events)
		}
		return nil
	})
}

// Who dies before a dead letter is committed has not told the queue of it either, and the
// other way round.
func TestDeadLetterAndItsMessageAreOne(t *testing.T) {
	t.Parallel()
	s := storetest.Open(t, "sqlite:"+filepath.Join(t.TempDir(), "waybill.db"))
	count := func() (letters, messages int) {
		t.Helper()
		if err := s.Read.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM dead_letter_consumers),
			(SELECT count(*) FROM event_outbox WHERE consumer_name = $1 AND status = 'pending')`, deadLetterQueue).Scan(&letters, &messages); err != nil {
			t.Fatal(err)
		}
		return letters, messages
	}
	now := time.Now()
	f := eventing.Failure{
		Run: eventing.Run{Delivery: eventing.Delivery{Consumer: "shipment-projection", EventID: "undecodable-1", Payload: []byte(`{"undecodable_base64":"eA=="}`)}},
		Now: now, State: eventing.StateDead, Stage: eventing.StageDecode, Reason: eventing.ReasonEnvelopeMalformed, Attempts: 1,
		DeadLetterUntil: now.Add(day),
	}
	dies := errors.New("the process dies")
	dying := eventing.WithFaults(t.Context(), func(p eventing.FaultPoint) error {
		if p == eventing.FaultFailing {
			return dies
		}
		return nil
	})
	store := backend.OnSQL(s, backend.Config{}).Telling(s.Events, deadLetterRow)
	if err := store.Quarantine(dying, f); !errors.Is(err, dies) {
		t.Fatalf("before the commit: %v", err)
	}
	if letters, messages := count(); letters+messages != 0 {
		t.Errorf("after a crash, there are %d dead letters and %d messages", letters, messages)
	}
	if err := store.Quarantine(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if letters, messages := count(); letters != 1 || messages != 1 {
		t.Errorf("there are %d dead letters and %d messages, want one each", letters, messages)
	}
}
