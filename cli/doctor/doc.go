// Package doctor finds what is wrong with an installation of lock-operator. [Ask] and [AskFacade] gather
// facts with the rights of the caller, and change nothing; [Judge] and [JudgeFacade] say what they mean.
// What the caller may not read is skipped, and said to be.
package doctor
