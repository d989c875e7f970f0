-- The plan's digest, so that the approval of one plan is never taken for that of another.
if obj.status == nil or obj.status.phase ~= "AwaitingApproval" then
  error("no plan of this reset waits to be approved")
end
if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["tidegate.io/approve"] = obj.status.digest
return obj
