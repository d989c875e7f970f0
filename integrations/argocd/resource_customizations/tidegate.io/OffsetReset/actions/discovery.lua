local waits = obj.status ~= nil and obj.status.phase == "AwaitingApproval"
return {
  ["approve"] = {displayName = "Approve the plan", iconClass = "fa fa-fw fa-check", disabled = not waits},
}
