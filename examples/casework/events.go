package main

import (
	"time"

	"github.com/waybill-go/waybill/eventing"
)

// The events: what routes.yaml describes under "events", as Go types. Each names its
// event type. The header has the aggregate: what is about a case is of the aggregate (case,
// its ID), so that ordered consumers get it in the order of its appending, and the log has
// a case's life under one name.

// about returns an event of a case.
func about[T any](caseID string, payload T) eventing.Event[T] {
	return eventing.New(caseAggregate, caseID, payload)
}

const caseAggregate = "case"

// actor is who did something, and from where.
type actor struct {
	UserID          string `json:"user_id"`
	Role            string `json:"role"`
	Channel         string `json:"channel,omitempty"`
	SystemTriggered bool   `json:"system_triggered,omitempty"`
	IPHash          string `json:"ip_hash,omitempty"`
}

// amount of money. Value has cents.
type amount struct {
	Value    float64 `json:"value"`
	Currency string  `json:"currency"`
}

// Cases.
type (
	// caseCreatedV1 is from the time when the central office took in all applications.
	caseCreatedV1 struct {
		CaseID        string `json:"case_id"`
		CaseReference string `json:"case_reference"`
		CitizenID     string `json:"citizen_id"`
		ServiceType   string `json:"service_type"`
		CreatedBy     actor  `json:"created_by"`
	}
	caseCreated struct {
		caseCreatedV1
		IntakeOfficeID string `json:"intake_office_id"`
	}
	caseStatusChanged struct {
		CaseID           string `json:"case_id"`
		CaseReference    string `json:"case_reference,omitempty"`
		PreviousStatus   string `json:"previous_status"`
		NewStatus        string `json:"new_status"`
		TransitionReason string `json:"transition_reason,omitempty"`
		ChangedBy        actor  `json:"changed_by"`
	}
	caseAssigned struct {
		CaseID     string `json:"case_id"`
		HandlerID  string `json:"handler_id"`
		AssignedBy actor  `json:"assigned_by"`
	}
	caseClosed struct {
		CaseID        string `json:"case_id"`
		ClosureReason string `json:"closure_reason"`
		ClosedBy      actor  `json:"closed_by"`
	}
	caseReopened struct {
		CaseID       string `json:"case_id"`
		ReopenReason string `json:"reopen_reason"`
		ReopenedBy   actor  `json:"reopened_by"`
	}
)

// Eligibility.
type (
	criteria struct {
		TotalRules int `json:"total_rules"`
		Passed     int `json:"passed"`
		Failed     int `json:"failed"`
		Pending    int `json:"pending"`
	}
	eligibilityEvaluated struct {
		CaseID          string   `json:"case_id"`
		EvaluationID    string   `json:"evaluation_id,omitempty"`
		Result          string   `json:"result"`
		CriteriaSummary criteria `json:"criteria_summary"`
		RuleVersion     string   `json:"rule_version,omitempty"`
	}
	eligibilityOverridden struct {
		CaseID         string `json:"case_id"`
		OriginalResult string `json:"original_result"`
		OverrideResult string `json:"override_result"`
		OverrideReason string `json:"override_reason"`
		OverriddenBy   actor  `json:"overridden_by"`
	}
)

// Documents.
type (
	documentUploaded struct {
		CaseID       string `json:"case_id"`
		DocumentID   string `json:"document_id"`
		DocumentType string `json:"document_type"`
		FileName     string `json:"file_name,omitempty"`
		FileSize     int    `json:"file_size,omitempty"` // bytes
		MIMEType     string `json:"mime_type,omitempty"`
		UploadedBy   actor  `json:"uploaded_by"`
	}
	documentVerified struct {
		CaseID             string `json:"case_id"`
		DocumentID         string `json:"document_id"`
		VerificationResult string `json:"verification_result"`
		VerifiedBy         actor  `json:"verified_by"`
	}
	documentRejected struct {
		CaseID          string `json:"case_id"`
		DocumentID      string `json:"document_id"`
		RejectionReason string `json:"rejection_reason"`
		RejectedBy      actor  `json:"rejected_by"`
	}
	documentExpired struct {
		CaseID     string    `json:"case_id"`
		DocumentID string    `json:"document_id"`
		ExpiredAt  time.Time `json:"expired_at"`
	}
)

// Payments.
type (
	paymentCalculated struct {
		CaseID             string         `json:"case_id"`
		PaymentID          string         `json:"payment_id"`
		Amount             amount         `json:"amount"`
		CalculationDetails map[string]any `json:"calculation_details"`
	}
	paymentBatchCreated struct {
		BatchID      string `json:"batch_id"`
		PaymentCount int    `json:"payment_count"`
		TotalAmount  amount `json:"total_amount"`
	}
	paymentSubmitted struct {
		CaseID          string `json:"case_id,omitempty"`
		PaymentID       string `json:"payment_id"`
		SubemaReference string `json:"subema_reference"`
	}
	paymentProcessed struct {
		CaseID          string    `json:"case_id"`
		PaymentID       string    `json:"payment_id"`
		BatchID         string    `json:"batch_id,omitempty"`
		Amount          amount    `json:"amount"`
		SubemaReference string    `json:"subema_reference"`
		BankReference   string    `json:"bank_reference,omitempty"`
		ProcessedAt     time.Time `json:"processed_at"`
	}
	paymentFailed struct {
		CaseID        string `json:"case_id"`
		PaymentID     string `json:"payment_id"`
		FailureReason string `json:"failure_reason"`
		RetryCount    int    `json:"retry_count"`
	}
)

// Fraud.
type (
	fraudSignalDetected struct {
		CaseID     string `json:"case_id"`
		SignalID   string `json:"signal_id"`
		SignalType string `json:"signal_type"`
		Severity   string `json:"severity"`
	}
	fraudScoreUpdated struct {
		CaseID        string `json:"case_id"`
		PreviousScore int    `json:"previous_score"`
		NewScore      int    `json:"new_score"`
		RiskLevel     string `json:"risk_level"`
	}
	weighedSignal struct {
		SignalType string `json:"signal_type"`
		Severity   string `json:"severity"`
		Weight     int    `json:"weight"`
	}
	fraudAlertTriggered struct {
		CaseID            string          `json:"case_id"`
		AlertID           string          `json:"alert_id,omitempty"`
		AlertType         string          `json:"alert_type,omitempty"`
		RiskLevel         string          `json:"risk_level"`
		RiskScore         int             `json:"risk_score"`
		SignalsDetected   []weighedSignal `json:"signals_detected,omitempty"`
		RecommendedAction string          `json:"recommended_action"`
		AutoActionsTaken  []string        `json:"auto_actions_taken,omitempty"`
	}
	fraudInvestigationOpened struct {
		CaseID          string `json:"case_id"`
		InvestigationID string `json:"investigation_id"`
		AssignedTo      string `json:"assigned_to"`
	}
	fraudCaseCleared struct {
		CaseID          string `json:"case_id"`
		InvestigationID string `json:"investigation_id"`
		ClearedBy       actor  `json:"cleared_by"`
	}
)

// Notifications.
type (
	notificationSent struct {
		NotificationID string `json:"notification_id"`
		Channel        string `json:"channel"`
		Recipient      string `json:"recipient"`
		Status         string `json:"status"`
	}
	notificationDelivered struct {
		NotificationID string    `json:"notification_id"`
		Channel        string    `json:"channel"`
		DeliveredAt    time.Time `json:"delivered_at"`
	}
	notificationFailed struct {
		NotificationID string `json:"notification_id"`
		Channel        string `json:"channel"`
		FailureReason  string `json:"failure_reason"`
		RetryCount     int    `json:"retry_count"`
	}
	notificationRead struct {
		NotificationID string    `json:"notification_id"`
		ReadAt         time.Time `json:"read_at"`
	}
)

// Other systems: BIS, the register of citizens, and Subema, which pays.
type (
	bisLookupCompleted struct {
		CitizenID          string `json:"citizen_id"`
		Found              bool   `json:"found"`
		VerificationStatus string `json:"verification_status"`
	}
	bisLookupFailed struct {
		CitizenID string `json:"citizen_id"`
		ErrorCode string `json:"error_code"`
		WillRetry bool   `json:"will_retry"`
	}
	subemaSyncCompleted struct {
		BatchID      string `json:"batch_id"`
		SuccessCount int    `json:"success_count"`
		FailureCount int    `json:"failure_count"`
	}
	subemaSyncFailed struct {
		BatchID   string `json:"batch_id"`
		ErrorCode string `json:"error_code"`
		WillRetry bool   `json:"will_retry"`
	}
)

func (caseCreatedV1) EventType() string            { return "case_created" }
func (caseCreated) EventType() string              { return "case_created" }
func (caseStatusChanged) EventType() string        { return "case_status_changed" }
func (caseAssigned) EventType() string             { return "case_assigned" }
func (caseClosed) EventType() string               { return "case_closed" }
func (caseReopened) EventType() string             { return "case_reopened" }
func (eligibilityEvaluated) EventType() string     { return "eligibility_evaluated" }
func (eligibilityOverridden) EventType() string    { return "eligibility_overridden" }
func (documentUploaded) EventType() string         { return "document_uploaded" }
func (documentVerified) EventType() string         { return "document_verified" }
func (documentRejected) EventType() string         { return "document_rejected" }
func (documentExpired) EventType() string          { return "document_expired" }
func (paymentCalculated) EventType() string        { return "payment_calculated" }
func (paymentBatchCreated) EventType() string      { return "payment_batch_created" }
func (paymentSubmitted) EventType() string         { return "payment_submitted" }
func (paymentProcessed) EventType() string         { return "payment_processed" }
func (paymentFailed) EventType() string            { return "payment_failed" }
func (fraudSignalDetected) EventType() string      { return "fraud_signal_detected" }
func (fraudScoreUpdated) EventType() string        { return "fraud_score_updated" }
func (fraudAlertTriggered) EventType() string      { return "fraud_alert_triggered" }
func (fraudInvestigationOpened) EventType() string { return "fraud_investigation_opened" }
func (fraudCaseCleared) EventType() string         { return "fraud_case_cleared" }
func (notificationSent) EventType() string         { return "notification_sent" }
func (notificationDelivered) EventType() string    { return "notification_delivered" }
func (notificationFailed) EventType() string       { return "notification_failed" }
func (notificationRead) EventType() string         { return "notification_read" }
func (bisLookupCompleted) EventType() string       { return "bis_lookup_completed" }
func (bisLookupFailed) EventType() string          { return "bis_lookup_failed" }
func (subemaSyncCompleted) EventType() string      { return "subema_sync_completed" }
func (subemaSyncFailed) EventType() string         { return "subema_sync_failed" }
