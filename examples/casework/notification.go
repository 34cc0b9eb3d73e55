package main

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/waybill-go/waybill/eventing"
	"github.com/waybill-go/waybill/router/routing"
)

const notificationEngine = "notification_engine"

// notifier is the notification engine. An event may have several letters to send: one for each
// recipient and each channel that reaches them.
//
// A letter is sent at least once. Sending is not part of any transaction, and must not be: a mail
// server that takes its time would hold up the database. So the handler runs outside of the
// transaction that concludes the event, and writes down what was sent in one of its own. Letters
// that are written down are not sent again when others fail. A crash in between sends them again,
// under the same ID.
type notifier struct {
	outbox   *eventing.Outbox[*sql.Tx]
	read     *sql.DB
	provider *provider
}

func (n *notifier) register(s *system) error {
	return handle(s, notificationEngine, "notify", n.notify)
}

// caseEvent is what all payloads about a case have.
type caseEvent struct {
	CaseID string `json:"case_id"`
}

// outcome is what came of an attempt to send a letter.
type outcome struct {
	letter
	err error
}

func (n *notifier) notify(ctx context.Context, e eventing.Event[caseEvent], a routing.Action) error {
	gone, err := n.gone(ctx, e.ID)
	if err != nil {
		return err
	}
	var outcomes []outcome
	var errs []error
	for _, l := range letters(e, a) {
		if gone[l.id] {
			continue
		}
		err := n.provider.send(ctx, l)
		outcomes, errs = append(outcomes, outcome{l, err}), append(errs, err)
	}
	if len(outcomes) == 0 {
		return nil
	}
	errs = append(errs, n.outbox.InTx(ctx, func(tx *sql.Tx) error { return n.record(ctx, tx, outcomes) }))
	return errors.Join(errs...)
}

// letters are those of an action.
func letters(e eventing.Event[caseEvent], a routing.Action) (all []letter) {
	for _, recipient := range a.List("recipients") {
		for _, channel := range a.List("channels") {
			if reach(recipient, channel) {
				l := letter{
					eventID: e.ID, caseID: e.Payload.CaseID, notification: a.Text("notification"), recipient: recipient, channel: channel, priority: a.Text("priority"),
				}
				l.id = derived(l.eventID, l.notification, l.recipient, l.channel)
				all = append(all, l)
			}
		}
	}
	return all
}

// gone returns the letters of an event that need not be sent.
func (n *notifier) gone(ctx context.Context, eventID string) (map[string]bool, error) {
	ids, err := texts(ctx, n.read, `SELECT notification_id FROM notifications WHERE event_id = $1 AND status <> 'failed'`, eventID)
	gone := make(map[string]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	return gone, err
}

const recordLetter = `INSERT INTO notifications (notification_id, event_id, case_id, notification, recipient, channel, priority, status, failures, reason)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (notification_id) DO UPDATE SET status = excluded.status, failures = notifications.failures + excluded.failures, reason = excluded.reason
WHERE notifications.status = 'failed'`

const fallBackLetter = `INSERT INTO notifications (notification_id, event_id, case_id, notification, recipient, channel, priority, status, failures, reason, instead_of)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT (notification_id) DO NOTHING`

// record writes down what was sent and what failed, and announces it.
func (n *notifier) record(ctx context.Context, tx *sql.Tx, outcomes []outcome) error {
	attempt, _ := eventing.AttemptFromContext(ctx)
	var events []eventing.Appendable
	for _, o := range outcomes {
		status, failures, reason := "sent", 0, ""
		var event eventing.Appendable = about(o.caseID, notificationSent{o.id, o.channel, o.recipient, status})
		if o.err != nil {
			status, failures, reason = "failed", 1, short(o.err)
			event = about(o.caseID, notificationFailed{o.id, o.channel, reason, max(attempt.Number-1, 0)})
		}
		written, err := affected(tx.ExecContext(ctx, recordLetter, o.id, o.eventID, o.caseID, o.notification, o.recipient, o.channel, o.priority, status, failures, reason))
		if err != nil {
			return err
		}
		if written > 0 { // else another run has sent it meanwhile
			events = append(events, event)
		}
	}
	return n.outbox.Append(ctx, tx, events...)
}

// fallBack is what becomes of an event some of whose letters could not be sent at any attempt: the
// case's handler finds each of them on the desk, and a telephone. It runs in the transaction that
// concludes the event. The library has logged the failure.
func (n *notifier) fallBack(ctx context.Context, anyTx any, c eventing.Conclusion) error {
	tx := anyTx.(*sql.Tx) // the store's
	undelivered, err := n.undelivered(ctx, tx, c.Envelope)
	if err != nil {
		return err
	}
	var events []eventing.Appendable
	for _, l := range undelivered {
		if _, err := tx.ExecContext(ctx, `UPDATE notifications SET status = 'given_up' WHERE notification_id = $1`, l.id); err != nil {
			return err
		}
		instead := l.id
		l.id = derived("fallback", instead)
		l.recipient, l.channel, l.priority = "case_handler", internal, "immediate"
		written, err := affected(tx.ExecContext(ctx, fallBackLetter,
			l.id, l.eventID, l.caseID, l.notification, l.recipient, l.channel, l.priority, "fallback", 0, short(c.Err), instead))
		if err != nil {
			return err
		}
		if written > 0 {
			events = append(events, about(l.caseID, notificationSent{l.id, l.channel, l.recipient, "fallback"}))
		}
	}
	return n.outbox.Append(ctx, tx, events...)
}

// undelivered are the letters of an event that were tried in vain. There are none if it was not
// even known whom to tell: then the handler is to find out.
func (n *notifier) undelivered(ctx context.Context, tx *sql.Tx, e eventing.Envelope) (all []letter, err error) {
	err = each(ctx, tx, `SELECT notification_id, case_id, notification, priority FROM notifications WHERE event_id = $1 AND status = 'failed'`, []any{e.ID},
		func(scan func(...any) error) error {
			l := letter{eventID: e.ID}
			err := scan(&l.id, &l.caseID, &l.notification, &l.priority)
			all = append(all, l)
			return err
		})
	if len(all) == 0 && e.AggregateType == caseAggregate {
		all = append(all, letter{id: e.ID, eventID: e.ID, caseID: e.AggregateID, notification: "undecided"})
	}
	return all, err
}

// affected is how many rows a statement has written.
func affected(r sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// short is the beginning of an error's text, as payloads may have it.
func short(err error) string {
	const most = 200
	text := strings.ToValidUTF8(err.Error(), "?")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}
