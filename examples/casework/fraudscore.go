package main

import (
	"context"
	"database/sql"
	"slices"

	"github.com/waybill-go/waybill/eventing"
)

// The levels of risk, and the scores from which on they are reached.
const (
	levelLow    = "LOW"
	levelMedium = "MEDIUM"
	levelHigh   = "HIGH"

	mediumScore = 40
	highScore   = 70
	maxScore    = 100
)

func levelOf(score int) string {
	switch {
	case score >= highScore:
		return levelHigh
	case score >= mediumScore:
		return levelMedium
	}
	return levelLow
}

// signal adds signals that an event gave to a case, and tells of each that is new, of the score if it has changed, and
// once that it is high.
func (f *fraud) signal(ctx context.Context, tx *sql.Tx, h eventing.Header, caseID string, signals ...weighedSignal) error {
	if len(signals) == 0 {
		return nil
	}
	before, err := lockScore(ctx, tx, caseID)
	if err != nil {
		return err
	}
	score := before
	var events []eventing.Appendable
	for _, s := range signals {
		id := derived(h.ID, s.SignalType)
		added, err := affected(tx.ExecContext(ctx, `INSERT INTO fraud_signals (signal_id, case_id, signal_type, severity, weight) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (signal_id) DO NOTHING`, id, caseID, s.SignalType, s.Severity, s.Weight))
		if err != nil {
			return err
		}
		if added > 0 {
			score = min(score+s.Weight, maxScore)
			events = append(events, about(caseID, fraudSignalDetected{caseID, id, s.SignalType, s.Severity}))
		}
	}
	if score != before {
		if err := setScore(ctx, tx, caseID, score); err != nil {
			return err
		}
		events = append(events, about(caseID, fraudScoreUpdated{caseID, before, score, levelOf(score)}))
	}
	if levelOf(before) != levelHigh && levelOf(score) == levelHigh {
		alert, err := f.alert(ctx, tx, h, caseID, score)
		if err != nil {
			return err
		}
		events = append(events, about(caseID, alert))
	}
	return f.outbox.Append(ctx, tx, events...)
}

// lockScore returns the score of a case, and holds off others who would change it: events of a case are judged in any
// order, and at the same time.
func lockScore(ctx context.Context, tx *sql.Tx, caseID string) (score int, err error) {
	err = tx.QueryRowContext(ctx, `INSERT INTO risk_profiles (case_id) VALUES ($1) ON CONFLICT (case_id) DO UPDATE SET case_id = excluded.case_id RETURNING score`, caseID).Scan(&score)
	return score, err
}

func setScore(ctx context.Context, tx *sql.Tx, caseID string, score int) error {
	_, err := tx.ExecContext(ctx, `UPDATE risk_profiles SET score = $2, risk_level = $3 WHERE case_id = $1`, caseID, score, levelOf(score))
	return err
}

// withdraw takes back what was assumed about a case because of an event.
func (f *fraud) withdraw(ctx context.Context, tx *sql.Tx, h eventing.Header) error {
	caseID := h.AggregateID
	before, err := lockScore(ctx, tx, caseID)
	if err != nil {
		return err
	}
	removed, err := affected(tx.ExecContext(ctx, `DELETE FROM fraud_signals WHERE signal_id = $1`, derived(h.ID, notAssessed)))
	if err != nil || removed == 0 {
		return err
	}
	sum, err := count(ctx, tx, `SELECT coalesce(sum(weight), 0) FROM fraud_signals WHERE case_id = $1`, caseID)
	if err != nil {
		return err
	}
	score := min(sum, maxScore)
	if err := setScore(ctx, tx, caseID, score); err != nil {
		return err
	}
	return f.outbox.Append(ctx, tx, about(caseID, fraudScoreUpdated{caseID, before, score, levelOf(score)}))
}

func (f *fraud) alert(ctx context.Context, tx *sql.Tx, h eventing.Header, caseID string, score int) (fraudAlertTriggered, error) {
	var all []weighedSignal
	err := each(ctx, tx, `SELECT signal_type, severity, weight FROM fraud_signals WHERE case_id = $1 ORDER BY weight DESC, signal_type`, []any{caseID}, func(scan func(...any) error) error {
		all = append(all, weighedSignal{})
		s := &all[len(all)-1]
		return scan(&s.SignalType, &s.Severity, &s.Weight)
	})
	return fraudAlertTriggered{
		CaseID: caseID, AlertID: derived(h.ID, "alert"), AlertType: "HIGH_RISK_SCORE", RiskLevel: levelHigh, RiskScore: score,
		SignalsDetected: slices.Clip(all), RecommendedAction: "supervisor_review", AutoActionsTaken: []string{"payment_hold", "supervisor_notification"},
	}, err
}
