package main

import (
	"context"
	"database/sql"
	"hash/fnv"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// What becomes of letters that were sent, as their channels report.

// reported is what a channel reports about a letter.
type reported struct {
	letter
	delivered, read bool
}

// fate is made up from the case and the letter: the same in each run.
func fate(l letter) reported {
	h := fnv.New32a()
	_, _ = h.Write([]byte(l.caseID + l.notification + l.recipient + l.channel)) // never fails
	n := h.Sum32() % 100
	bounces := n >= 97 && l.channel != internal && l.channel != "portal"
	return reported{l, !bounces, n < 35 && l.channel != "sms"}
}

// collectReports has each letter that was sent reported as delivered or not, and some of them read.
func (s *system) collectReports(ctx context.Context, now time.Time) error {
	const most = 50 // in a transaction
	for {
		letters, err := s.sentLetters(ctx, most)
		if err != nil || len(letters) == 0 {
			return err
		}
		if err := s.outbox.InTx(ctx, func(tx *sql.Tx) error { return s.report(traced(ctx), tx, letters, now) }); err != nil {
			return err
		}
	}
}

func (s *system) sentLetters(ctx context.Context, most int) (all []letter, err error) {
	err = each(ctx, s.db.read, `SELECT notification_id, case_id, notification, recipient, channel FROM notifications
		WHERE status IN ('sent', 'fallback') ORDER BY case_id, notification_id LIMIT $1`, []any{most}, func(scan func(...any) error) error {
		all = append(all, letter{})
		l := &all[len(all)-1]
		return scan(&l.id, &l.caseID, &l.notification, &l.recipient, &l.channel)
	})
	return all, err
}

func (s *system) report(ctx context.Context, tx *sql.Tx, letters []letter, now time.Time) error {
	var events []eventing.Appendable
	for _, l := range letters {
		status := "delivered"
		switch r := fate(l); {
		case !r.delivered:
			status = "bounced"
			events = append(events, about(l.caseID, notificationFailed{l.id, l.channel, "returned by the recipient's server", 0}))
		case r.read:
			status = "read"
			events = append(events, about(l.caseID, notificationDelivered{l.id, l.channel, now}), about(l.caseID, notificationRead{l.id, now}))
		default:
			events = append(events, about(l.caseID, notificationDelivered{l.id, l.channel, now}))
		}
		if _, err := tx.ExecContext(ctx, `UPDATE notifications SET status = $2 WHERE notification_id = $1`, l.id, status); err != nil {
			return err
		}
	}
	return s.outbox.Append(ctx, tx, events...)
}
