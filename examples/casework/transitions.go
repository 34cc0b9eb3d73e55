package main

import "slices"

// The states of a case.
const (
	stateNone             = "" // the intake has a row for it; the workflow engine has not seen it
	stateIntake           = "intake"
	stateValidation       = "validation"
	stateEligibilityCheck = "eligibility_check"
	stateUnderReview      = "under_review"
	stateApproved         = "approved"
	stateRejected         = "rejected"
	statePaymentPending   = "payment_pending"
	statePaymentProcessed = "payment_processed"
	stateOnHold           = "on_hold"
	stateClosed           = "closed"
)

// The roles of those who change a state.
const (
	roleIntake     = "district_intake_officer"
	roleHandler    = "case_handler"
	roleSupervisor = "supervisor"
	roleAdmin      = "system_admin"
	roleEngine     = "system" // the workflow engine itself
)

// transition leads from one state to another, and says whose decision it is.
type transition struct {
	from, to string
	by       []string
}

// The groups of those who may decide.
var (
	byEngine   = []string{roleEngine}
	byIntake   = []string{roleIntake, roleHandler}
	byHandlers = []string{roleHandler, roleSupervisor}
	byHolders  = []string{roleSupervisor, roleAdmin} // the action hold_case may narrow it
)

// transitions are all that there are. What the engine does follows from an event, in the
// transaction that handles the event. What people do comes as a case_status_changed.
var transitions = []transition{
	{stateNone, stateIntake, byEngine},                                                   // case_created
	{stateIntake, stateValidation, byIntake},                                             // the application is complete
	{stateValidation, stateEligibilityCheck, byEngine},                                   // so are the documents
	{stateEligibilityCheck, stateUnderReview, byEngine},                                  // ELIGIBLE
	{stateEligibilityCheck, stateRejected, byEngine},                                     // INELIGIBLE
	{stateUnderReview, stateApproved, byHandlers},                                        //
	{stateUnderReview, stateRejected, []string{roleHandler, roleSupervisor, roleEngine}}, // the engine: overridden, INELIGIBLE after all
	{stateRejected, stateUnderReview, byEngine},                                          // overridden, ELIGIBLE after all
	{stateApproved, statePaymentPending, byHandlers},                                     // the payment is in a batch
	{statePaymentPending, statePaymentProcessed, byEngine},                               // payment_processed
	{statePaymentProcessed, stateClosed, byEngine},                                       // case_closed
	{stateRejected, stateClosed, byEngine},                                               // case_closed
	{stateClosed, stateUnderReview, []string{roleSupervisor}},                            // reopened

	// fraud_alert_triggered stops what can still be stopped.
	{stateIntake, stateOnHold, byEngine},
	{stateValidation, stateOnHold, byEngine},
	{stateEligibilityCheck, stateOnHold, byEngine},
	{stateUnderReview, stateOnHold, byEngine},
	{stateApproved, stateOnHold, byEngine},
	{statePaymentPending, stateOnHold, byEngine},

	// From there it goes back to where it was, or ends; an administrator may approve it there and then.
	{stateOnHold, stateIntake, byHolders},
	{stateOnHold, stateValidation, byHolders},
	{stateOnHold, stateEligibilityCheck, byHolders},
	{stateOnHold, stateUnderReview, byHolders},
	{stateOnHold, stateApproved, byHolders},
	{stateOnHold, statePaymentPending, byHolders},
	{stateOnHold, stateRejected, byHolders},
}

// possible reports whether somebody of a role may take a case from one state to another.
func possible(from, to, role string) bool {
	return slices.ContainsFunc(transitions, func(t transition) bool { return t.from == from && t.to == to && slices.Contains(t.by, role) })
}

// legal reports whether anybody may.
func legal(from, to string) bool {
	return slices.ContainsFunc(transitions, func(t transition) bool { return t.from == from && t.to == to })
}

// needed are the documents that a service asks for.
var needed = map[string][]string{
	"general_assistance": {"id_card", "income_statement"},
	"child_allowance":    {"id_card", "birth_certificate"},
	"medical_assistance": {"id_card", "medical_report"},
}
