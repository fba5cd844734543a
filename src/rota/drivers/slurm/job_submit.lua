-- Rota: hold jobs of these partitions until Rota releases them.
-- Put it beside slurm.conf as job_submit.lua, and set JobSubmitPlugins=lua. Without Rota, `rota slurm watchdog` releases.
local PARTITIONS = { "@PARTITIONS@" }

local function is_managed(job)
   if job.admin_comment ~= nil and job.admin_comment ~= "" then return false end
   if job.reservation ~= nil and job.reservation ~= "" then return false end
   if job.script == nil then return false end  -- srun and salloc wait at a terminal: Slurm starts them itself
   for _, name in ipairs(PARTITIONS) do
      if name == "*" or job.partition == name or (job.partition == nil and name == "(default)") then return true end
   end
   return false
end

function slurm_job_submit(job, part_list, submit_uid)
   if is_managed(job) then
      if job.priority == 0 then job.admin_comment = "rota:user" else job.admin_comment = "rota" end
      job.priority = 0
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, part_list, modify_uid)
   return slurm.SUCCESS
end
return slurm.SUCCESS
