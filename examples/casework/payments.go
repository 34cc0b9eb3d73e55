package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// The payments office, and Subema, which pays. A batch has payments of many cases: its own events are of the
// aggregate (payment_batch, its ID), those about a payment of its case.

func aboutBatch[T any](id string, payload T) eventing.Event[T] {
	return eventing.New("payment_batch", id, payload)
}

// batchID is that of the payments which go out on a day.
func (p *plan) batchID(day int) string { return derived(p.run, "batch", fmt.Sprint(day)) }

// submit sends the payments of a day to Subema.
func (s *system) submit(ctx context.Context, id string, lives []*life, now time.Time) error {
	total := amount{0, "SRD"}
	events := make([]eventing.Appendable, 0, 2*len(lives)+1)
	for _, l := range lives {
		total.Value += l.amount().Value
		events = append(events,
			about(l.caseID, paymentSubmitted{l.caseID, l.paymentID, l.subemaReference(now)}),
			about(l.caseID, caseStatusChanged{l.caseID, l.reference, stateApproved, statePaymentPending, "payment_submitted", l.supervisor()}),
		)
	}
	events = slices.Insert(events, 0, eventing.Appendable(aboutBatch(id, paymentBatchCreated{id, len(lives), total})))
	return s.append(ctx, events)
}

func (l *life) subemaReference(now time.Time) string {
	return fmt.Sprintf("SUB-%d-%08d", now.Year(), l.number+1)
}

// settlePayments is what Subema says on a day about the payments of a batch: about each, and then about them all. At times
// it does not answer at first.
func (s *system) settlePayments(ctx context.Context, id string, answers []subemaAnswer, fails bool, now time.Time) error {
	var events []eventing.Appendable
	if fails {
		events = append(events, aboutBatch(id, subemaSyncFailed{id, "SUBEMA_UNAVAILABLE", true}))
	}
	sync := subemaSyncCompleted{BatchID: id}
	for _, a := range answers {
		if !a.processed {
			sync.FailureCount++
			events = append(events, about(a.caseID, paymentFailed{a.caseID, a.paymentID, "The bank does not know the account.", a.try}))
			continue
		}
		sync.SuccessCount++
		events = append(events, about(a.caseID, paymentProcessed{
			CaseID: a.caseID, PaymentID: a.paymentID, BatchID: id, Amount: a.amount(), SubemaReference: a.subemaReference(now),
			BankReference: fmt.Sprintf("BANK-TXN-%05d", a.number+1), ProcessedAt: now,
		}))
	}
	return s.append(ctx, append(events, aboutBatch(id, sync)))
}

// append appends events, in a transaction.
func (s *system) append(ctx context.Context, events []eventing.Appendable) error {
	return s.outbox.InTx(ctx, func(tx *sql.Tx) error { return s.outbox.Append(ctx, tx, events...) })
}
