local reset = obj.status ~= nil and obj.status.reset or nil
local waits = reset ~= nil and reset.phase == "AwaitingApproval"
return {
  ["approve"] = {displayName = "Approve the plan", iconClass = "fa fa-fw fa-check", disabled = not waits},
}
