-- The plan's digest, so that the approval of one plan is never taken for that of another.
local reset = obj.status ~= nil and obj.status.reset or nil
if reset == nil or reset.phase ~= "AwaitingApproval" then
  error("no plan of this policy waits to be approved")
end
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["tidegate.io/approve"] = reset.digest
return obj
