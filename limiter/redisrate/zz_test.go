package redisrate
import ("testing";"context";"fmt";"time";"github.com/redis/go-redis/v9"; rr "github.com/go-redis/redis_rate/v10")
func TestZZ(t *testing.T){
 c:=redis.NewClient(&redis.Options{Addr:"127.0.0.1:17391"}); ctx:=context.Background()
 l:=rr.NewLimiter(c)
 for _,lim:=range []rr.Limit{{Rate:40_000_000,Burst:100,Period:time.Second},{Rate:1_600_000,Burst:1,Period:time.Second},{Rate:100_000,Burst:1000,Period:time.Second},{Rate:3,Burst:3,Period:time.Second}} {
  t0:=time.Now(); n:=0
  for i:=0;i<3000;i++{ r,err:=l.AllowN(ctx,fmt.Sprint("k",lim),lim,1); if err!=nil{fmt.Println(err);break}; n+=r.Allowed; if i==2{fmt.Printf("%+v\n",r)} }
  fmt.Println(lim,n,time.Since(t0))
 }
 r,err:=l.AllowN(ctx,"a",rr.PerSecond(5),7); fmt.Printf("%+v %v\n",r,err)
 r,err=l.AllowN(ctx,"a",rr.PerSecond(5),0); fmt.Printf("%+v %v\n",r,err)
 r,err=l.AllowN(ctx,"a",rr.PerSecond(5),-3); fmt.Printf("%+v %v\n",r,err)
 r,err=l.AllowN(ctx,"a",rr.PerSecond(5),1); fmt.Printf("%+v %v\n",r,err)
 r,err=l.AllowN(ctx,"b",rr.PerSecond(10),10); fmt.Printf("%+v %v\n",r,err)
 fmt.Println(c.Get(ctx,"rate:b").Val())
 r,err=l.AllowN(ctx,"c",rr.Limit{Rate:0,Burst:1,Period:time.Second},1); fmt.Printf("%+v %v\n",r,err)
 r,err=l.AllowN(ctx,"d",rr.Limit{Rate:1,Burst:1000000000,Period:366*24*time.Hour},900000000); fmt.Printf("%+v %v\n",r,err)
 r,err=l.AllowN(ctx,"d",rr.Limit{Rate:1,Burst:1000000000,Period:366*24*time.Hour},900000000); fmt.Printf("%+v %v\n",r,err)
 r,err=l.AllowN(ctx,"e",rr.Limit{Rate:1,Burst:1000,Period:366*24*time.Hour},1000); fmt.Printf("%+v %v\n",r,err)
}
